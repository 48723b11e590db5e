# ---
# title: Capture a graph: follow Python into a graph and its guards
# minutes: 40
# needs: lesson 00
# ---

# %% [markdown]
# # Capture a graph: follow Python into a graph and its guards
#
# {{facts}}
#
# Before anything can become faster, `torch.compile` has to find out what your Python does.
# The part that finds out is *TorchDynamo*. Here you watch it work.

# %% [markdown]
# ## What you'll do
#
# Follow three functions and two models from Python bytecode into FX graphs, read the notes
# that Dynamo takes on the way, and predict which call makes it start again.

# %% [markdown]
# ## What you'll learn
#
# - follow Python bytecode into an FX graph, and say what is left of the bytecode
# - read guards: which values, shapes and attributes a graph depends on
# - say which call of a compiled function is slow: the first, and each that fails the guards
# - say what becomes of a loop, an `if`, and an attribute of a model
# - name what capture leaves to Python

# %% [markdown]
# ## What you'll need
#
# Lesson 00, or to know that a graph is a list of tensor operations. Nothing here needs a GPU,
# and nothing is compiled for speed: we only look.

# %% [markdown]
# ## Setup

# %% tags=["parameters"]
device = "auto"

# %%
import math

import torch
from torch import nn
from torch.nn import functional as F

from helpers import begin_lesson, bytecode_view, capture_graphs, changes, guards_view

device = begin_lesson("02", device=device)
torch.manual_seed(0)
x = torch.randn(4, 8, device=device)

# %% [markdown]
# ## From bytecode to a graph
#
# Python does not run your text. It first translates each function into *bytecode*: a list of
# small instructions, such as "fetch `x`" (`LOAD_FAST x`) or "multiply" (`BINARY_OP *`).
# Dynamo reads this list, one instruction after the other.


# %%
def swish(x):
    gate = torch.sigmoid(x)
    return x * gate


# %% [markdown]
# **Predict.** Dynamo will write new bytecode for `swish`. Which of its steps will still be
# there: the call of `sigmoid`, the multiplication, the `return`?

# %%
capture = capture_graphs(swish, x)
[graph] = capture.graphs
bytecode_view(graph)

# %% [markdown]
# **Inspect.** On the left is your function as Python compiled it, line by line; on the right
# what Dynamo put in its place. Look for `__compiled_fn`, and see how the right side fetches
# `x`, calls, and returns. "Same" means that an instruction stands in both; "gone" and "added",
# that it stands on one side only: the old `CALL` called `sigmoid`, the new one calls the graph.
# Lines such as `BUILD_LIST` only pack and unpack the result. And this is what it calls:

# %%
graph

# %% tags=["nbval-check-output"]
after = graph.bytecode_after
print("multiplies before:", "BINARY_OP" in graph.bytecode_before.names)
print("multiplies after:", "BINARY_OP" in after.names)
print("calls the graph:", "__compiled_fn" in str(after))
print("in the graph:", [op.target for op in graph.calls])

# %% [markdown]
# **Explain.** `sigmoid` and the multiplication moved into the graph. What is left of the
# bytecode fetches `x`, calls the graph, and returns what it gives. Dynamo reads with
# stand-ins for tensors, which know shape and dtype but hold no numbers.
#
# Your function itself is not changed: Python asks Dynamo each time before it runs a
# function, and Dynamo hands it the new bytecode to run instead.

# %% [markdown]
# ## What the graph assumes: guards
#
# The next function is harder: a number, a word, and a shape decide what it does.


# %%
def normalize(x, scale=2.0, kind="rms"):
    if kind == "rms":
        x = x / x.square().mean(-1, keepdim=True).sqrt()
    if x.shape[0] > 2:
        x = x - x.mean(0)
    return x * scale


# %% [markdown]
# **Predict.** `x` has 4 rows. What will be in the graph: the `if`s, the number `scale`, the
# word `kind`? And if they are not in it, how does Dynamo know when the graph is valid?

# %%
capture = capture_graphs(normalize, x)
[graph] = capture.graphs
guards_view(graph)

# %% [markdown]
# **Inspect.** Each row is a *guard*: something that Dynamo took for granted while it read.
# "Contiguous" is the layout in memory: row after row. The group at the bottom is about things
# that you seldom change; open it once, and then leave it folded. One of them is the usual
# surprise: a call inside `torch.no_grad()` is in another grad mode. Now the graph: where is 2.0?

# %%
print(graph.code)

# %% tags=["nbval-check-output"]
words = [guard.words for guard in graph.guards]
print("scale equals 2.0" in words, "kind equals 'rms'" in words)
print("shape noted:", any("x is a float32 tensor of shape (4, 8)" in w for w in words))
print("2.0 stands in the graph:", "* 2.0" in graph.code)
print("comparisons in the graph:", [op for op in graph.calls if "gt" in op.target])

# %% [markdown]
# **Explain.** The graph has no `if`. Dynamo decided both while it read, and noted what it
# relied on: `kind` is `'rms'`, and `x` has the shape (4, 8), so more than 2 rows. `scale` is
# *burned in*: this graph multiplies by 2.0 and by nothing else, and a guard sees to it that it
# is used for no other `scale`. What becomes of another one, you see below.

# %% [markdown]
# **Predict.** What changes in graph and guards for an `x` with 2 rows?

# %%
small = capture_graphs(normalize, x[:2])
changes(capture, small)

# %% tags=["nbval-check-output"]
print(changes(capture, small).sentences[0])

# %% [markdown]
# ### Which call is slow?
#
# A compiled function checks its guards at each call. If they hold, the graph runs; if not,
# Dynamo reads the function again. To see when that happens we use a *backend* of our own: a
# backend is a function that receives each new graph.

# %%
from helpers import reset_compiler

reset_compiler()
made = []


def count(graph_module, inputs):
    made.append(graph_module)
    return graph_module.forward


compiled = torch.compile(normalize, backend=count)


# %%
def call(label, fn, *args, **kwargs):
    before = len(made)
    fn(*args, **kwargs)
    print(f"{label:<20}", "slow: captured" if len(made) > before else "fast: reused")


# %% [markdown]
# **Predict.** Slow or fast? Write down eight words before you run the cell.

# %% tags=["nbval-check-output"]
call("first call", compiled, x)
call("other numbers", compiled, x + 1)
call("scale=3.0", compiled, x, scale=3.0)
call("scale=2.0 again", compiled, x)
call("scale=4.0", compiled, x, scale=4.0)
call("scale=5.0", compiled, x, scale=5.0)
call("kind='none'", compiled, x, kind="none")
call("2 rows", compiled, x[:2])

# %% [markdown]
# **Explain.** The numbers inside a tensor are never guarded, so the second call is fast. A
# failed guard costs a new capture, and the old graph is kept: going back to `scale=2.0` is
# fast. With a real backend, slow means seconds: the new graph is compiled too.
#
# Why are 4.0 and 5.0 fast? When a guard on a plain number fails, Dynamo does better: the
# second graph takes `scale` as an input, for *any* float (an int is another type, and slow
# once more). So a float argument, or an int argument that is only calculated with, is slow
# twice, then fast. A number that decides how often a loop goes round cannot be left open:
# each new count is slow. Rows are treated like plain numbers: after a second number of rows
# Dynamo asks for a graph for any. How, and when it gives up, is lesson 04.

# %% [markdown]
# Two surprises, since nothing in the call shows them: under `torch.no_grad()` the same call is
# slow once, and so is `x.t()` in place of an 8 by 8 `x`, which has the same shape but other
# strides.
#
# For a program of your own you need no backend to count: `compilation_count()` grows with each
# capture.

# %% tags=["nbval-check-output"]
from helpers import compilation_count

for options in ({"scale": 6.0}, {"kind": "max"}):
    before = compilation_count()
    compiled(x, **options)
    print(options, "captured:", compilation_count() - before)

# %% [markdown]
# That is your own tool for the question "which call is slow?": read it before and after.

# %% [markdown]
# ## A loop is unrolled
#
# The third function splits attention into heads, with a Python loop and a list.


# %%
def by_head(q, k, v, heads=2):
    parts = [tensor.chunk(heads, -1) for tensor in (q, k, v)]
    outputs = []
    for a, b, c in zip(*parts, strict=True):
        weights = torch.softmax(a @ b.T / math.sqrt(b.shape[-1]), -1)
        outputs.append(weights @ c)
    return torch.cat(outputs, -1)


# %% [markdown]
# **Predict.** How many graphs with 2 heads, and how many with 4? How often will `softmax` be in
# them? Will there be a loop, a `zip`, a list?

# %%
q, k, v = (torch.randn(4, 8, device=device) for _ in range(3))
two = capture_graphs(by_head, q, k, v)
two


# %% tags=["nbval-check-output"]
def times(capture, name):
    ops = [op for graph in capture.graphs for op in graph.calls]
    return sum(op.target.endswith(name) for op in ops)


four = capture_graphs(by_head, q, k, v, kwargs={"heads": 4})
for capture in (two, four):
    print("graphs:", len(capture.graphs), " softmax:", times(capture, "softmax"))
print("heads equals 2" in [guard.words for guard in two.graphs[0].guards])

# %% [markdown]
# **Explain.** One graph, and no loop in it: Dynamo went round with Python and noted the
# operations of each round. `zip`, the list and `math.sqrt` ran while it read, and are gone.
# The price: every other `heads` is another graph, for a loop's count never becomes "any number".
# And 100 rounds are a graph 100 times as long, which takes longer to compile.

# %% [markdown]
# ## A model: attributes are guarded
#
# A model is read like a function. What it looks up in `self` is guarded like an argument.


# %%
class Scorer(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.fc = nn.Linear(width, 3)
        self.scale = 2.0

    def forward(self, x):
        if self.training:
            x = F.dropout(x, 0.1)
        return self.fc(x) * self.scale


# %% [markdown]
# **Predict.** Which attributes of `Scorer` will have a guard? And what will `scorer.eval()`
# change?

# %%
scorer = Scorer().to(device)
training = capture_graphs(scorer, x)
guards_view(training.graphs[0])

# %%
evaluating = capture_graphs(scorer.eval(), x)
changes(training, evaluating)

# %% tags=["nbval-check-output"]
for capture in (training, evaluating):
    guards = capture.graphs[0].guards
    names = ("self.training", "self.scale")
    print([g.words for name in names for g in guards if g.source == name])
    print("  dropout:", times(capture, "dropout"))

# %% [markdown]
# **Explain.** `self.training` and `self.scale` are guarded by value, parameters by shape and
# dtype. A training step changes the *numbers* in the parameters, and numbers are not guarded:
# no new capture. `scorer.eval()` is one: the usual surprise, after training, together with
# `torch.no_grad()`. A second value of `scorer.scale` is one as well; from then on any float will
# do. Not so for an int: torch 2.11 and 2.14 keep an int attribute of a model by value, so one that
# changes at every call is slow at every call.
#
# **Predict.** A vision transformer loops over its blocks, and each block calls modules that
# call modules. How many graphs for 2 blocks? How many for 3?

# %% tags=["nbval-check-output"]
from helpers.models import VisionTransformer

images = torch.randn(2, 3, 32, 32, device=device)
for depth in (2, 3):
    vit = capture_graphs(VisionTransformer(depth=depth).to(device), images)
    attention = times(vit, "scaled_dot_product_attention")
    print("blocks:", depth, " graphs:", len(vit.graphs), " attention:", attention)

# %% [markdown]
# **Explain.** One graph each: Dynamo walks into every module, and the loop over blocks is
# unrolled like any other.
#
# This is why nobody needs `torch.jit.script` here. It translated the *text* of a model into a
# small, typed language of its own: what that language lacked had to be rewritten, and types
# annotated. Dynamo follows a real call with real values, so ordinary Python will do: loops,
# classes, `zip`, default arguments. And what it cannot follow, Python still runs.

# %% [markdown]
# ## What capture leaves to Python
#
# **Predict.** Here something happens besides the tensors: a list grows, and later a line is
# printed. Does the list still grow under `torch.compile`? How many graphs does each give?

# %%
seen = []


def remembers(x):
    y = torch.relu(x)
    seen.append(x.shape[0])
    return y * 2


def talks(x):
    y = torch.relu(x)
    print("rows:", x.shape[0])
    return y * 2


# %% tags=["nbval-check-output"]
quiet, loud = capture_graphs(remembers, x), capture_graphs(talks, x)
print("seen:", seen, " graphs:", len(quiet.graphs))
print("graphs:", len(loud.graphs), " breaks:", len(loud.breaks))
print("stopped at:", loud.breaks[0].source_line)

# %% [markdown]
# **Inspect.** For the first function, look on the right for "← changes seen": it comes after the
# call of the graph, and writes to the `seen` that a line further up fetched.

# %%
bytecode_view(quiet.graphs[0])

# %% [markdown]
# **Explain.** The list grows. Dynamo noted the change while it read, and the new bytecode
# makes it after the graph has run. A `print` is different: it has to happen in the middle.
# So Dynamo ends the graph there, lets Python print, and starts a second graph for the rest.
# That is a *graph break*: the answer stays right, but what could have been done together is
# split. Lesson 03 finds and repairs them.

# %% [markdown]
# ## Explore it
#
# One more function, with a flag, a shape and a number that all matter. First the view as it
# starts, without controls, so that it also shows where nothing runs.


# %%
def gated(x, scale=2.0, center=False):
    if center:
        x = x - x.mean(-1, keepdim=True)
    if x.shape[0] > 2:
        x = torch.relu(x)
    return x * scale


# %%
from helpers import capture_view

capture_view(gated, shape=(4, 16, 8), device=device)

# %% [markdown]
# Now with controls. Edit the text, then press **Tab** (or *Capture it*). What changed since
# the last view is said in words, and marked. Each view is a first call: nothing is remembered
# from the one before. Before each of these, say what will change in graph and guards:
#
# - tick `center`; then untick it
# - set *batch* to 2, and then to 1
# - choose another dtype; then `int64`, with `center` ticked
# - write `scale=3.0` in the first line
# - replace the last line by two: `for _ in range(3): x = x * scale` and `return x`
# - put `print(x.sum())` before the `return`

# %% [markdown]
# <details><summary>What you should have seen</summary>
#
# - `center`: two more operations, `mean` and `sub`; the guard becomes `center is True`; and back
# - *batch* 2: no `relu`, and another shape in the guard; 1: only the shape in the guard changes
# - another dtype: the guard on `x`. `int64` with `center`: an error at line 3, since `mean` needs
#   floating point
# - `scale=3.0`: the guard equals 3.0, and the graph multiplies by it. Each view is a first call,
#   so it never becomes "any number" here
# - the loop: three `mul` where one was
# - `print`: a graph break, two graphs, and bytecode that calls the rest of the function
# </details>

# %% tags=["widget"]
from helpers import capture_panel

capture_panel(gated, shape=(4, 16, 8), device=device)

# %% [markdown]
# ## Check yourself
#
# **Predict.** Here is a function that you have not seen. Say, before you run the cells below it:
#
# 1. How many graphs does `settle(x)` give for our `x` of shape (4, 8), and what is in them?
# 2. On which values will there be guards?
# 3. Which of these calls are slow, in this order: `settle(x)`, `settle(x + 1)`,
#    `settle(x, steps=2)`, `settle(x, steps=4)`, `settle(x, mask)`, `settle(x[:, :5])`,
#    `settle(x)`?


# %%
def settle(x, mask=None, steps=3):
    for _ in range(steps):
        x = torch.tanh(x)
    if mask is not None:
        x = x * mask
    if x.shape[1] > 100:
        x = x[:, :100]
    return x


# %% [markdown]
# The next cells let Dynamo answer. Then put a function of your own in place of `settle`.

# %% tags=["nbval-check-output"]
reset_compiler()
compiled = torch.compile(settle, backend=count)
mask = torch.ones_like(x)
call("settle(x)", compiled, x)
call("settle(x + 1)", compiled, x + 1)
call("steps=2", compiled, x, steps=2)
call("steps=4", compiled, x, steps=4)
call("mask", compiled, x, mask)
call("x[:, :5]", compiled, x[:, :5])
call("settle(x) again", compiled, x)

# %%
guards_view(capture_graphs(settle, x).graphs[0])

# %% [markdown]
# **Explain.** Compare with your own answers first.
#
# <details><summary>Answers to 1, 2 and 3</summary>
#
# 1. One graph with three `tanh`: the loop is unrolled, and both `if`s are walked past.
# 2. `x` (dtype, shape, layout in memory, device, whether it requires a gradient), `mask` (it is
#    `None`) and `steps` (it equals 3). Nothing on the numbers in `x`.
# 3. Slow: the first; `steps=2` and `steps=4`, for a loop's count stays by value; `mask`, which is
#    no longer `None`; and the new shape. Fast: `x + 1`, because only numbers differ; and the
#    last, because the first graph was kept.
# </details>

# %% [markdown]
# Three more, without code:
#
# <details><summary>4. You change <code>model.scale</code> from 2.0 to 3.0 between two calls of
# a compiled model. Does it still multiply by 2.0?</summary>
#
# No. The guard on `self.scale` fails, and Dynamo captures again; the new graph takes any float, so
# a third value is fast. The result is always that of your Python; what changes is the time.
# </details>
#
# <details><summary>5. After an optimizer step all parameters hold other numbers. Is the next
# call slow?</summary>
#
# No. Parameters are inputs of the graph, guarded by shape, dtype and device.
# </details>
#
# <details><summary>6. Why does <code>if x.sum() > 0:</code> not simply become a
# guard?</summary>
#
# A guard is checked before the graph runs. Here the value is known only after part of it has
# run, so the graph has to end there: a graph break (lesson 03).
# </details>

# %% [markdown]
# ## Recap
#
# - Dynamo reads bytecode; tensor operations go into a graph, and the new bytecode calls it.
# - Guards note what was taken for granted: tensors by shape, layout and dtype, Python values by
#   value. A float that changes becomes an input at its second value; a loop's count never does.
# - The first call is slow, and each call that fails the guards of every graph so far.
# - Loops are unrolled, `if`s on Python values are decided, attributes of a model are guarded.
# - Changes to lists and the like are made after the graph; a `print` splits it in two.

# %% [markdown]
# ## In practice
#
# - A float that changes at every call (a learning rate) costs a second capture and no more. Keep
#   counters out of compiled code: a loop's count, and in torch 2.11 and 2.14 an int kept in the
#   model, cost a capture per value. As a tensor it is an input from the first call on.
# - Call a model in each mode that you need before you measure: `.eval()` and `torch.no_grad()` each
#   cost a capture.
# - Keep shapes few: pad to a handful of lengths, drop the odd last batch.
# - A list that grows at each call is itself guarded, here `seen` by its length: such a function
#   is captured again at every call.
# - With `TORCH_LOGS="graph_code,guards,recompiles"` in the environment, torch prints the same
#   things for a program of your own.
# - torch 2.11 and 2.14 tell which line asked for a guard; 2.7 does not, and that column is
#   missing there. The facts checked in this lesson hold on all three.

# %% [markdown]
# ## Further reading
#
# - [Dynamo deep-dive](https://docs.pytorch.org/docs/stable/user_guide/torch_compiler/torch.compiler_dynamo_deepdive.html):
#   how it reads bytecode, with guards and symbolic shapes
# - [PEP 523](https://peps.python.org/pep-0523/): the door in CPython by which Dynamo comes in
# - [dis](https://docs.python.org/3/library/dis.html): what each bytecode instruction does
# - [TorchScript](https://docs.pytorch.org/docs/stable/jit.html): the older way, now deprecated
