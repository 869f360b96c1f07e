"""LangChain: `create_agent` with ChatOpenAI."""

from langchain.agents import create_agent
from langchain.agents.middleware import wrap_tool_call
from langchain.messages import AIMessage, ToolMessage
from langchain_openai import ChatOpenAI

from shared import FUNCTIONS, ROUNDS_MAX, command_line, report


@wrap_tool_call
def tell_the_model(request, handler):
    """Without this a tool that raises ends the agent."""
    try:
        return handler(request)
    except Exception as error:
        return ToolMessage(content=f"Error: {error}", tool_call_id=request.tool_call["id"])


args = command_line()
model = ChatOpenAI(model=args.model, base_url=args.base_url, api_key="sk-test")
agent = create_agent(model, tools=FUNCTIONS, middleware=[tell_the_model])
task = {"messages": [{"role": "user", "content": args.task}]}
config = {"recursion_limit": 3 * ROUNDS_MAX}

if args.stream:
    for mode, state in agent.stream(task, config, stream_mode=["messages", "values"]):
        if mode == "values":
            messages = state["messages"]
else:
    messages = agent.invoke(task, config)["messages"]
report(messages[-1].text, sum(isinstance(message, AIMessage) for message in messages))
