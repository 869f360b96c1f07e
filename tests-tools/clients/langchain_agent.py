"""LangChain: `create_agent` with ChatOpenAI or ChatAnthropic."""

from langchain.agents import create_agent
from langchain.agents.middleware import ClearToolUsesEdit, ContextEditingMiddleware, wrap_tool_call
from langchain.messages import AIMessage, ToolMessage
from langchain_anthropic import ChatAnthropic
from langchain_openai import ChatOpenAI

from shared import FUNCTIONS, ROUNDS_MAX, TOKENS_MAX, command_line, report


@wrap_tool_call
def tell_the_model(request, handler):
    """Without this a tool that raises ends the agent."""
    try:
        return handler(request)
    except Exception as error:
        return ToolMessage(content=f"Error: {error}", tool_call_id=request.tool_call["id"], status="error")


def chat_model(args):
    given = {"model": args.model, "api_key": "sk-test"}
    if args.wire == "messages":
        if args.thinking:
            given["thinking"] = {"type": "enabled", "budget_tokens": TOKENS_MAX // 2}
        return ChatAnthropic(base_url=args.origin, max_tokens=TOKENS_MAX, **given)
    if args.wire == "responses":
        given["use_responses_api"] = True
        if args.thinking:
            given["reasoning"] = {"effort": "medium", "summary": "auto"}
            given["include"] = ["reasoning.encrypted_content"]
    return ChatOpenAI(base_url=args.base_url, **given)


args = command_line()
model = chat_model(args)
middleware = [tell_the_model]
if args.scenario == "editing":
    # All answers but the last are replaced by "[cleared]" at once, also those of a program that runs.
    middleware.append(ContextEditingMiddleware(edits=[ClearToolUsesEdit(trigger=1, keep=1)]))
agent = create_agent(model, tools=FUNCTIONS, middleware=middleware)
task = {"messages": [{"role": "user", "content": args.task}]}
config = {"recursion_limit": 3 * ROUNDS_MAX}

if args.stream:
    for mode, state in agent.stream(task, config, stream_mode=["messages", "values"]):
        if mode == "values":
            messages = state["messages"]
else:
    messages = agent.invoke(task, config)["messages"]
report(messages[-1].text, sum(isinstance(message, AIMessage) for message in messages))
