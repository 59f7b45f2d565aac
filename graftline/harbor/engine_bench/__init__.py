"""EngineBench: cards of a game that an agent implements in Rust, as Harbor tasks. How they are scored is `in_box/cargo_tests.py`."""
