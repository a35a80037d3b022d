"""Example accounting: a real small cluster, recorded, and a generator for a year of an invented large one."""
