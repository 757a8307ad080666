"""GPT-2 Optimization Explorer: flip an optimization, see what it does to speed, memory and text."""

__version__ = "0.1.0"
