"""Where artifacts are kept for all the machines that make them: beside the code, or in a bucket."""
