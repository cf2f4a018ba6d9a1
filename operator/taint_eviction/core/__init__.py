"""The brain: pure decisions about taints, tolerations, deadlines and the timed queue.

No I/O, no clock, no asyncio: it is told what was seen and what time it is, and answers what should be done and when.
"""
