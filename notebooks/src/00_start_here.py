# ---
# title: Start here: see what torch.compile makes of a function
# minutes: 20
# needs: nothing
# ---

# %% [markdown]
# # Start here: see what torch.compile makes of a function
#
# {{facts}}
#
# Welcome. `torch.compile` is one line of code that can make PyTorch faster. This course
# opens it up: you will see what it does to *your* function, and learn to tell when it pays.
# No GPU is needed to begin.

# %% [markdown]
# ## What you'll do
#
# Check your machine, watch a real function become a graph, compile it, and then change it
# and see the graph follow.

# %% [markdown]
# ## What you'll learn
#
# - tell whether your machine is ready, and what it can show live
# - name the stages between a Python function and the code that a processor runs
# - read a captured graph: which operations, from which line
# - say why the first call of a compiled function is slow, and which later call is slow again
# - pick a route through the lessons

# %% [markdown]
# ## What you'll need
#
# Some Python, and to have used PyTorch tensors before. To run a cell: click it, then press
# **Shift+Enter**. To run everything: menu *Run*, then *Run All Cells*.

# %% [markdown]
# ## Setup
#
# `device` says where the lesson runs. `"auto"` takes your NVIDIA GPU if there is a usable
# one, and your CPU otherwise. You can also write `"cpu"` or `"cuda"`. What is imported from
# `helpers` belongs to this course; everything else is PyTorch.

# %% tags=["parameters"]
device = "auto"

# %%
import math

import torch

from helpers import begin_lesson, capture_graphs, compare, measure, preflight, progress

device = begin_lesson("00", device=device)

# %% [markdown]
# ### Is this machine ready?
#
# One line per requirement: OK, or what to do. In a class, send your instructor the one-line
# result, `preflight().line`.

# %%
preflight()

# %% [markdown]
# ## Meet the pipeline
#
# `torch.compile` is not one program but three that hand work to each other. You don't have
# to remember the names yet; the lessons take them one at a time.
#
# - **TorchDynamo** reads your Python and writes down the tensor operations as a *graph*: a
#   list of operations, and which one feeds which.
# - **AOTAutograd** adds the graph that computes gradients, if you train.
# - **TorchInductor** turns graphs into fast code: *kernels* for a GPU or for a CPU.
#
# Not every machine can make everything. The mark in each box says what **this** one does.

# %%
from helpers import pipeline_picture

pipeline_picture()

# %% [markdown]
# Whatever a lesson shows, it says where it comes from: **live** (made just now, here),
# **cross-target** (made just now, for a GPU that is not here) or **recorded** (made earlier,
# on a GPU that is named). A recorded time is never shown as if it were yours. Outputs that
# came with this page say so: "stored from ..."; they were live there and then.

# %% [markdown]
# ## Capture a graph
#
# Here is a function that real models spend much of their time in: *attention*. It compares
# each row of `q` with each row of `k`, turns the scores into weights that sum to 1, and
# mixes the rows of `v` with them. With `causal=True`, a row may not look at later rows.


# %%
def attention(q, k, v, causal=False):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if causal:
        future = torch.ones_like(scores, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(future, float("-inf"))
    return torch.softmax(scores, dim=-1) @ v


# %%
torch.manual_seed(0)
q, k, v = (torch.randn(4, 128, 64, device=device) for _ in range(3))

# %% [markdown]
# **Predict.** Dynamo will follow one call `attention(q, k, v)` and write down what happens to
# the tensors. Before you run the next cell:
#
# 1. How many graphs will there be? There is an `if` in the middle.
# 2. Which operations will be in it? Count them in the source.
# 3. Will `math.sqrt` be one of them?

# %%
capture = capture_graphs(attention, q, k, v)
capture

# %% [markdown]
# **Inspect.** Inputs are at the top, the result is at the bottom, and an arrow means "is used
# by". Each colour is one line of your function; the number in the box says which one.
# `matmul` is Python's name for `@`, and `truediv` for `/`. Open *Its code* to read the same
# graph as Python: can you find `math.sqrt`'s answer in it?

# %% tags=["nbval-check-output"]
[graph] = capture.graphs
print("graphs:", len(capture.graphs))
for op in graph.calls:
    print(f"  line {op.lineno}: {op.target}")

# %% tags=["nbval-check-output"]
same = torch.allclose(capture.result, attention(q, k, v), atol=1e-5)
print("the result is what plain PyTorch gives:", same)

# %% [markdown]
# **Explain.** One graph, five operations. The `if` is gone: `causal` was `False`, so Dynamo
# walked past it, and noted that this graph holds only while `causal` is `False`. Such a
# note is called a *guard*; there is one for the shape and the type of each tensor, too.
# `math.sqrt` is gone as well: it works on a plain number, so Dynamo did the sum once and
# kept the answer, 8.0. **Only tensor operations end up in the graph.**

# %% [markdown]
# **Predict.** Now with `causal=True`. How many graphs, and which operations are new?

# %%
causal_capture = capture_graphs(attention, q, k, v, kwargs={"causal": True})
causal_capture

# %% tags=["nbval-check-output"]
names = [op.target for op in graph.calls]
[causal_graph] = causal_capture.graphs
print("graphs:", len(causal_capture.graphs))
print("new:", [op.target for op in causal_graph.calls if op.target not in names])

# %% [markdown]
# **Explain.** Still one graph, but a different one: this time the walk went through the `if`,
# and lines 4 and 5 appear with their own colours. One Python function can have many graphs, one
# for each way through it that you really use.

# %% [markdown]
# ## Compile it
#
# So far nothing became faster: we only looked. `torch.compile(attention)` sends the graph on
# to TorchInductor, which writes and builds code for your processor.
#
# **Predict.** The next cell calls the compiled function many times. Which call takes longest,
# and by how much?

# %%
from helpers import reset_compiler

reset_compiler()  # so that this cell shows a first call however often you run it
compiled = torch.compile(attention)
with progress("compiling, then timing", expected_s=60 if device == "cpu" else 30):
    timing = measure(compiled, q, k, v, label="compiled")
timing

# %%
ratio = timing.first_call_s * 1000 / timing.wall_ms
print(f"the first call took as long as {ratio:,.0f} later ones")

# %% [markdown]
# **Explain.** `torch.compile` itself returned at once. The work happened inside the *first
# call*: capture, code generation, building. Later calls run the code that is already there.
# Of those calls, the line above gives the middle time, and in brackets how far it may be off.
# If the wait was long: next time it is shorter, because the code is also kept on disk.
#
# Is it faster than plain PyTorch? And is the answer still right?

# %%
plain = measure(attention, q, k, v, label="plain PyTorch")
compare(plain, timing)

# %% tags=["nbval-check-output"]
agree = torch.allclose(compiled(q, k, v), attention(q, k, v), atol=1e-4)
print("compiled and plain PyTorch agree:", agree)

# %% [markdown]
# **Explain.** Faster, slower or "no difference shown": for a function as small as this, each is
# an honest answer, and yours may differ from the stored one. A compiled function pays only if
# its later calls are faster *and* there are enough of them to earn the first call back. What
# makes some functions win and others lose is lesson 01.
#
# **Predict.** We call `compiled` again, then with `causal=True`, then with `causal=True` once
# more. Which of the three is slow, and why?

# %%
from helpers import compilation_count

compiles = []
with progress("three more calls", expected_s=30):
    for flag in (False, True, True):
        before = compilation_count()
        compiled(q, k, v, causal=flag)
        compiles.append((flag, compilation_count() - before))

# %% tags=["nbval-check-output"]
for flag, count in compiles:
    print(f"causal={flag}: compiled {count} times")

# %% [markdown]
# **Explain.** Before it runs anything, a compiled function checks its guards. The first call
# here passed them. The second did not, since `causal` had changed: so it was captured and
# compiled anew, a *recompile*, and was as slow as a first call. Your results are right in
# either case. The third found the new code, and passed its guards.

# %% [markdown]
# ## Explore it
#
# First the panel's starting view without its controls, for readers of a page that cannot run.

# %%
from helpers import graph_view

graph_view(attention, shape=(4, 128, 64), device=device)

# %% [markdown]
# Now with controls (run the cell with **Ctrl+Enter** to stay here; after a restart, run it
# again). Edit the text, then press **Shift+Enter** or *Show the graph*. Every argument without
# a default gets a random tensor. What changed is said in words and marked "new". Try:
#
# - tick `causal`, then untick it
# - change the rows: which shapes follow, and which operations?
# - replace `torch.softmax(scores, dim=-1)` by `torch.relu(scores)`
# - put `print(scores.sum())` before the `return`: a *graph break*. Python does that line, and a
#   new graph begins after it; the result stays right
# - type a function of your own, or break this one on purpose

# %% tags=["widget"]
from helpers import graph_panel

graph_panel(attention, shape=(4, 128, 64), device=device)

# %% [markdown]
# ## Pick a route
#
# {{routes}}
#
# {{lessons}}
#
# Your copies of the lessons are in the folder `my/`: change whatever you like there.

# %% [markdown]
# ## Check yourself
#
# <details><summary>1. A function has an <code>if</code> on a Python flag. Does Dynamo put
# both branches into the graph?</summary>
#
# No. It follows the branch that this call takes, and notes the value of the flag as a guard.
# A call with the other value gets a graph of its own.
# </details>
#
# <details><summary>2. Why does <code>math.sqrt(q.shape[-1])</code> not appear as an
# operation?</summary>
#
# It computes with a plain Python number, not with a tensor. Dynamo computes it while it
# reads, and the graph holds the answer.
# </details>
#
# <details><summary>3. <code>compiled = torch.compile(f)</code> returns at once. When is the
# code generated?</summary>
#
# During the first call, because only then are the shapes and types of the inputs known.
# </details>

# %% [markdown]
# <details><summary>4. Your laptop has no GPU. Which of these can it make itself: FX graphs,
# Triton kernels, GPU times?</summary>
#
# FX graphs: live. Triton kernels, which are code for a GPU: cross-target, if the picture at the
# top says so. GPU times: no; they are recorded, and the page says on which GPU.
# </details>
#
# <details><summary>5. You call a compiled function with a tensor of another type than before,
# and then once more. What happens?</summary>
#
# The guard on the type fails, so the first of the two calls compiles anew and is slow. The
# second finds the new code and is fast.
# </details>

# %% [markdown]
# ## Recap
#
# - `preflight()` says whether the machine is ready; the picture says what is live on it.
# - Python → TorchDynamo → graph and guards → AOTAutograd → TorchInductor → kernels.
# - In a graph, inputs are on top, and each operation carries the line it came from.
# - The first call compiles. Later calls check guards and run; a call that fails a guard compiles
#   anew.
# - Routes through the lessons that exist are above.

# %% [markdown]
# ## In practice
#
# - On a CPU, TorchInductor needs a C++ compiler such as g++. Without one, capturing graphs
#   still works; the list at the top says how to get one.
# - The first call may take from seconds to a minute, depending on processor and torch version.
# - Names of operations can differ between torch versions. The ones checked in this lesson
#   are the same in 2.7, 2.11 and 2.14.
# - `capture_graphs` leaves your function as it was: looking costs you nothing later.

# %% [markdown]
# ## Further reading
#
# - [Introduction to torch.compile](https://docs.pytorch.org/tutorials/intermediate/torch_compile_tutorial.html):
#   the official first tutorial, with the same ideas on other examples
# - [Dynamo overview](https://docs.pytorch.org/docs/stable/user_guide/torch_compiler/torch.compiler_dynamo_overview.html):
#   how TorchDynamo reads Python, from its authors
# - [torch.fx](https://docs.pytorch.org/docs/stable/fx.html): the graph format that you just
#   read, for when you want to change graphs yourself
