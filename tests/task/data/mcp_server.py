"""A small MCP server over its standard input and output."""

import os

from mcp.server import MCPServer

server = MCPServer("sums")


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def fail(why: str) -> str:
    """Fail."""
    raise ValueError(why)


@server.tool()
def leave(why: str = "") -> str:
    """End the server."""
    os.write(2, f"{why}\n".encode())
    os._exit(1)


if __name__ == "__main__":
    server.run()
