"""instructor: an object of a type that the client declares as the one tool to be called."""

import instructor
from openai import OpenAI
from pydantic import BaseModel

from shared import command_line, report


class Price(BaseModel):
    """What an item costs."""

    item: str
    euros: int


args = command_line()
client = instructor.from_openai(OpenAI(base_url=args.base_url, api_key="sk-test"))
messages = [{"role": "user", "content": args.task}]
price = client.create(model=args.model, response_model=Price, messages=messages)
report(f"{price.item} costs {price.euros} EUR.", 1)
