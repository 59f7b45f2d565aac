"""The MCP server of `graftline mcp`: rules from edits, for coding agents.

`tools.py` has what the tools do, each in a process that can be ended; `server.py` how they are offered; `results.py` what they
return; `boundary.py` which paths they take.
"""
