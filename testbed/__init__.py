"""A local substitute for production: broker, engines, and everything that the demo, campaigns and tests start and
stop.
"""
