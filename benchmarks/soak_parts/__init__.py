"""The parts of `benchmarks.soak`: what runs, what it is asked to do, what is done to it, and what is proven of it."""
