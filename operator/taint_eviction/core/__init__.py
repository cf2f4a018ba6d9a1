"""The core: pure decisions about taints, tolerations, deadlines and the timed queue.

No I/O, no clock, no asyncio: it receives facts and the time, and returns what should be done and when.
"""
