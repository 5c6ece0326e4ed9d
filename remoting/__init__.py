"""RocketMQ's remoting protocol: frames, commands, typed headers and bodies, and the asyncio ends of a
connection.
"""
