"""Loops that push the items of an iterable or asynchronous iterable to a stream."""

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from typing import Any

from sklseq.estimators.online.stream import Emission, OnlineStream

_END = object()


def emissions_of(stream: OnlineStream, source: Iterable) -> Iterator[Emission]:
    """Push the items of ``source`` one by one and flush at its end; yield the labels."""
    for item in source:
        yield from stream.push(item)
    yield from stream.flush()


async def emissions_of_async(
    stream: OnlineStream, source: AsyncIterable, clock: Callable[[], float]
) -> AsyncIterator[Emission]:
    """``emissions_of`` for an asynchronous source; between items, commit labels at deadlines."""
    import asyncio  # start-up: asynchronous sources only

    items, arriving = source.__aiter__(), None
    try:
        while True:
            arriving = arriving or asyncio.ensure_future(_next_of(items))
            deadline = stream.deadline
            left = None if deadline is None else max(0.0, deadline - clock())
            await asyncio.wait([arriving], timeout=left)
            if not arriving.done():
                emissions = stream.tick()
            elif (item := arriving.result()) is _END:
                break
            else:
                arriving, emissions = None, stream.push(item)
            for emission in emissions:
                yield emission
        for emission in stream.flush():
            yield emission
    finally:
        if arriving is not None:
            arriving.cancel()


async def _next_of(items: AsyncIterator) -> Any:
    # Return a marker at the end, as a task cannot raise StopAsyncIteration.
    return await anext(items, _END)
