"""A stand-in for the NVIDIA driver library, built by the tests and driven by a scenario file."""
