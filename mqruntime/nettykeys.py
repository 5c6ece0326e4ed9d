"""Upstream's keys for the network library of its servers, which every server's file may hold.

Invariant: none of them has an effect here; they are accepted without a warning."""

from __future__ import annotations

NETTY_SERVER_KEYS = frozenset(
    {
        "enableShutdownGracefully",
        "serverAsyncSemaphoreValue",
        "serverCallbackExecutorThreads",
        "serverNettyWorkerGroupEnable",
        "serverOnewaySemaphoreValue",
        "serverPooledByteBufAllocatorEnable",
        "serverSelectorThreads",
        "serverSocketBacklog",
        "serverSocketRcvBufSize",
        "serverSocketSndBufSize",
        "serverWorkerThreads",
        "shutdownWaitTimeSeconds",
        "useEpollNativeSelector",
        "writeBufferHighWaterMark",
        "writeBufferLowWaterMark",
    }
)
