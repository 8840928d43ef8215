"""`astra bench`: what a call costs here, beside what it costs with the servers that people run.

| module | holds |
|---|---|
| `effort` | how long a run takes: rounds, seconds, counts |
| `world` | the bundle that is served, and the requests that are sent |
| `wires` | HTTP/1.1 answers read with as little work as is right; a lean keep-alive connection |
| `load`, `episodes`, `probes` | processes of their own: load, whole episodes, clients and world |
| `children` | starting and asking those processes; CPU and memory of process trees |
| `run` | one run from start to end: round robin, medians |
| `results` | what was measured, beside what was asked, as JSON and as tables |

Every answer is checked while it is timed; one wrong answer ends the run with an error.
"""
