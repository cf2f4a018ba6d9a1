"""The core: pure decisions about taints, tolerations, deadlines and the timed queue.

No I/O, no clock, no asyncio: it is given facts and the time, and answers what should be done and when.
"""
