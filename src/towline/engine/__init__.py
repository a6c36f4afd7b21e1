"""The one asyncio shell: facts -> core -> store -> orders."""
