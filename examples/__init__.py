"""Example accounting: records of a real small cluster, and a generator for a year of an invented large one."""
