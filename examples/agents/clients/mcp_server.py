"""An MCP server with one tool, for agents that take their tools from one."""

from mcp.server import MCPServer

server = MCPServer("sums")


@server.tool()
def add(a: int, b: int) -> int:
    """The sum of two numbers."""
    return a + b


if __name__ == "__main__":
    server.run("stdio")
