"""An OpenAI client of ``selverify serve``: the answer of a search, and what it cost.

selverify serve --model NAME --url URL --verifier docs/examples/verifier.yaml
python docs/examples/proxy_client.py "What is 3+4+5?"
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import openai


def main(arguments: Sequence[str] | None = None) -> None:
    """Ask one question."""
    read = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    read.add_argument("question")
    read.add_argument("--url", default="http://127.0.0.1:8800/v1")
    read.add_argument("--method", default="gates_only")
    read.add_argument("--calls", type=int, default=16)
    given = read.parse_args(arguments)
    client = openai.OpenAI(base_url=given.url, api_key="none")
    reply = client.chat.completions.create(
        model="any",
        messages=[{"role": "user", "content": given.question}],
        extra_body={"selverify": {"method": given.method, "calls": given.calls}},
    )
    print(reply.choices[0].message.content)
    print(f"Answer: {reply.selverify['answer']}; {reply.usage.verifier_calls} verifier calls")


if __name__ == "__main__":
    main()
