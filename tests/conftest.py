"""For all tests: what freezegun must leave alone, and no event loop but those that tests ask for."""

import asyncio

import freezegun

# Hypothesis measures its own work with clocks. kubernetes loads its models when its attributes are looked at, as
# freezegun does with every module, and models that are made while the clock is frozen are broken for good.
freezegun.configure(extend_ignore_list=["hypothesis", "kubernetes"])  # type: ignore[no-untyped-call, unused-ignore]

# Else Python 3.11 makes a loop when pytest-asyncio first asks for one, and nobody ever closes it.
asyncio.set_event_loop(None)
