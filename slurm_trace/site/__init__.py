"""The site profile: what a cluster is made of, and what is proven about it."""
