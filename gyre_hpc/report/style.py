"""The page that html.py fills: layout and colours, light and dark."""

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{title}}</title>
<style>
:root {
  color-scheme: light dark;
  --page: #fbfbfa; --card: #ffffff; --ink: #1d1f23; --soft: #656b76; --line: #e3e5e8;
  --rollout: #2f6fde; --train: #e07b1a; --switch: #8d94a1; --start: #c9ced6; --lost: #c8323c;
  --good: #2a9461; --partial: #d2a319; --none: #8d94a1; --idle: #7b86c9;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #15171a; --card: #1d2024; --ink: #e8eaed; --soft: #a0a7b3; --line: #31353b;
    --rollout: #6ea1f7; --train: #f0a04f; --switch: #7b828e; --start: #474d56; --lost: #ee6a72;
    --good: #55c08b; --partial: #e3c04f; --none: #7b828e; --idle: #98a2e2;
  }
}
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 1040px; margin: 0 auto; padding: 24px 16px 48px; }
header h1 { font-size: 24px; margin: 0; }
header p, section > p { color: var(--soft); margin: 4px 0 12px; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 16px 20px; margin-top: 16px; }
section h2 { font-size: 16px; margin: 0; }
svg { display: block; width: 100%; height: auto; font-size: 12px; }
.grid { stroke: var(--line); }
.tick, .label, .value { fill: var(--soft); }
.value { fill: var(--ink); }
.mark { stroke: var(--ink); stroke-opacity: .35; }
.line { fill: none; stroke-width: 2; }
.line.s-train { stroke: var(--train); } .dot.s-train { fill: var(--train); }
.line.s-blind { stroke: var(--none); stroke-dasharray: 5 4; } .dot.s-blind { fill: none; }
.dot.s-eval { fill: var(--rollout); stroke: var(--card); stroke-width: 2; }
.c-rollout { fill: var(--rollout); } .c-train { fill: var(--train); } .c-switch { fill: var(--switch); }
.c-start { fill: var(--start); } .c-lost { fill: var(--lost); } .pale { opacity: .3; }
.e-scored { fill: var(--good); } .e-partial { fill: var(--partial); } .e-unscored { fill: var(--none); } .e-infra { fill: var(--lost); }
.idle { fill: var(--idle); }
.legend { display: flex; flex-wrap: wrap; gap: 4px 16px; color: var(--soft); font-size: 13px; margin-bottom: 8px; }
.legend i { display: inline-block; width: 11px; height: 11px; border-radius: 3px; margin-right: 6px; vertical-align: -1px; }
.legend .s-train, .legend .c-train { background: var(--train); }
.legend .s-eval, .legend .c-rollout { background: var(--rollout); }
.legend .s-blind, .legend .c-switch, .legend .e-unscored { background: var(--switch); }
.legend .c-start { background: var(--start); }
.legend .c-lost, .legend .e-infra { background: var(--lost); }
.legend .e-scored { background: var(--good); } .legend .e-partial { background: var(--partial); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 14px; }
th { text-align: left; font-weight: 400; color: var(--soft); padding: 2px 24px 2px 0; }
td { font-variant-numeric: tabular-nums; padding: 2px 0; }
.nothing { color: var(--soft); font-style: italic; }
</style>
</head>
<body><main>
{{body}}
</main></body>
</html>
"""
