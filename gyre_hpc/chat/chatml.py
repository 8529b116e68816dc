"""The `chatml` template: plain ChatML for models without a template of their own, tools and calls written as Hermes does.

Append-only: every turn is rendered on its own, thinking is kept.
"""

CHATML = r"""
{%- macro tell_tools() %}
    {{- '# Tools\n\nYou may call these functions:\n<tools>' }}
    {%- for tool in tools %}
        {{- '\n' + (tool | tojson) }}
    {%- endfor %}
    {{- '\n</tools>\n\nTo call one, write a JSON object with its name and arguments within <tool_call></tool_call> tags:\n' }}
    {{- '<tool_call>\n{"name": <name>, "arguments": <object>}\n</tool_call>' }}
{%- endmacro %}
{%- if tools and messages[0].role != 'system' %}
    {{- '<|im_start|>system\n' + tell_tools() + '<|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\n' }}
    {%- if message.reasoning_content %}
        {{- '<think>\n' + message.reasoning_content + '\n</think>\n\n' }}
    {%- endif %}
    {{- message.content }}
    {%- if tools and loop.first and message.role == 'system' %}
        {{- ('\n\n' if message.content else '') + tell_tools() }}
    {%- endif %}
    {%- for call in message.tool_calls or [] %}
        {{- '\n' if message.content or not loop.first }}
        {{- '<tool_call>\n{"name": "' + call.function.name + '", "arguments": ' }}
        {{- call.function.arguments if call.function.arguments is string else call.function.arguments | tojson }}
        {{- '}\n</tool_call>' }}
    {%- endfor %}
    {{- '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
"""
