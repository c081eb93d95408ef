"""``python -m selverify``: the command line."""

from selverify.cli import app

app(prog_name="selverify")
