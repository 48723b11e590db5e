# ---
# title: Find and repair graph breaks: keep a call in one graph
# minutes: 45
# needs: lesson 02
# ---

# %% [markdown]
# # Find and repair graph breaks: keep a call in one graph
#
# {{facts}}
#
# Where Dynamo cannot follow your Python, it ends the graph, lets Python run, and starts again.
# The result stays right, nearly always, and nobody tells you. Here you find these places.

# %% [markdown]
# ## What you'll do
#
# See what one break costs, meet its three kinds and one that changes what your code does, learn
# where the usual tools mislead, and bring a model with five breaks down to none.

# %% [markdown]
# ## What you'll learn
#
# - say what a graph break costs: launches, bytes, and work for Python
# - find each break's line, cause and effect, and tell its three kinds apart
# - know when the usual tools say too little, and what only looks like a break
# - decide between `fullgraph`, `error_on_graph_break` and `torch.compiler.disable`
# - repair breaks one by one, and prove that the result stayed the same

# %% [markdown]
# ## What you'll need
#
# Lesson 02, or to know that Dynamo turns Python into graphs. No GPU is needed: where there is
# none, launches and bytes are counted in code made for an H200, and its times are recorded ones.

# %% [markdown]
# ## Setup
#
# Gradients are off; breaks are the same with them.

# %% tags=["parameters"]
device = "auto"

# %%
import logging

import torch
from torch import nn
from torch.nn import functional as F

from helpers import begin_lesson, explain_graph_breaks, reset_compiler

device = begin_lesson("03", device=device)
torch.manual_seed(0)
torch.set_grad_enabled(False)
x = torch.randn(4, 8, device=device)

# %% [markdown]
# ## What a break costs
#
# Four operations on big tensors, once with a break in the middle and once without.
# `torch._dynamo.graph_break()` is torch's own way to ask for one; it does nothing else. (On a CPU
# the tensors are smaller, so that you need not wait.)


# %%
def gate(a, b):
    z = torch.sigmoid(a) * b
    torch._dynamo.graph_break()
    return F.silu(z) + a


def gate_whole(a, b):
    z = torch.sigmoid(a) * b
    return F.silu(z) + a


# %%
side = 8192 if device == "cuda" else 2048
a, b = torch.randn(2, side, side, device=device)
explain_graph_breaks(gate, a, b)

# %% [markdown]
# **Inspect.** This is the picture of a call: a graph, the cut, a graph. Below it a card for each
# break says where, what it does to the call, why, and what would repair it.
#
# **Predict.** In one graph, Inductor makes one kernel of the four operations: it reads `a` and
# `b`, and writes the result. How many kernels will there be with the break? How many whole
# tensors will be read and written? What else has to happen between the two graphs?

# %%
from helpers import break_cost

costs = break_cost(gate, gate_whole, a, b, recorded="gate")
costs

# %% tags=["nbval-check-output"]
for form in (costs.broken, costs.repaired):
    tensors = form.bytes / a.nbytes
    print(f"{form.name}: graphs {form.graphs}, launches {form.launches},", end=" ")
    print(f"whole tensors read and written {tensors:.0f}")

# %% [markdown]
# **Explain.** A kernel cannot reach over a break. `z`, which never left the registers, now has
# to be written and read again, and `a` is read a second time: twice the traffic. A tensor of
# 8192 × 8192 has 268 MB, and an H200 moves at most 4.8 TB in a second: the three tensors
# more take it 0.17 ms at least, whatever else happens. That is a break's price for big tensors.
#
# The other price is paid at every call, by the host: at a break the compiled code goes back to
# Python, which runs your line and then calls the rest of your function, as a function with
# guards of its own. **Predict.** Which price is left where the tensors are tiny?

# %%
small = torch.randn(2, 16, 16, device=device)
small_costs = break_cost(gate, gate_whole, *small, recorded="gate_small")
small_costs

# %% [markdown]
# **Explain.** Only the host's: moving a kilobyte takes no time worth naming. Most calls lie
# between the two, and nearer to this one than one would think: with 2048 × 2048, 17 MB each, an
# H200 was busy for 29 of a call's 76 µs (torch 2.11). How long the host takes differs from one
# process to the next; compare such times only within one.

# %% [markdown]
# ## Three kinds of break
#
# What a break does to the rest of its function depends on where it stands. Three functions, each
# with one break:


# %%
def branch(x):
    y = torch.relu(x)
    if y.sum() > 0:
        y = y * 2
    return y + 1


def guarded(x):
    y = torch.tanh(x) * 2
    y = y + x
    try:
        torch._dynamo.graph_break()
        y = y * 2
    finally:
        y = y + 1
    return y.cos()


# %%
def settle(x):
    y = torch.tanh(x)
    for _ in range(4):
        y = torch.tanh(y + x)
        if y.abs().max() > 0.9:
            y = y / 2
    return y * 2


# %% [markdown]
# **Predict.** After the break Dynamo wants to go on at the next line. Can it go on in the middle
# of a `try`? In the middle of a loop? How many graphs does each of the three give?

# %% tags=["nbval-check-output"]
for fn in (branch, guarded, settle):
    found = explain_graph_breaks(fn, x)
    [one] = found
    print(f"{fn.__name__}: graphs {found.graphs}, {one.effect} at: {one.source_line}")

# %%
explain_graph_breaks(settle, x)

# %% [markdown]
# **Explain.** To go on after a break, Dynamo makes a function of what is left, and Python calls
# it. A function can start at any line, but not inside a `try` or a loop that is already under
# way. Hence three effects, and their codes:
#
# - *Split in two* (`split`): the usual case. Two graphs, and the line between them.
# - *Rest left to Python* (`rest_eager`): within a `try`, or a `with` that cannot be entered again.
#   What came before is compiled; all that follows is not. (Fewer than two operations before it
#   are not worth a graph to Dynamo: then the whole function is skipped.)
# - *Whole function skipped* (`frame_skipped`): in the body of a `for` or `while` loop, where
#   Dynamo would have to go on in the middle. Nothing is compiled, not even the lines above: the
#   costliest, and the quietest. (At the test of a loop or a `break`, it depends on Python's
#   version.)
#
# What a skipped function calls is still tried, each function on its own.

# %% [markdown]
# ### A break that changes what your code does
#
# **Predict.** A tensor has no attribute `label`. In plain Python the `except` takes over. And
# compiled?


# %%
def optional_label(x):
    y = x.sin()
    try:
        y = y.label
    except AttributeError:
        y = y * 2
    return y.cos()


# %%
found = explain_graph_breaks(optional_label, x)
found

# %% tags=["nbval-check-output"]
print("plain Python gives a tensor:", torch.is_tensor(optional_label(x)))
print("compiled, it stops with:", type(found.changes_behaviour).__name__)

# %% [markdown]
# **Explain.** Whether a tensor has an attribute is not asked before the value is *used*: Dynamo
# puts the reading off. Here that is in the last line, after the `try`. There it breaks, Python
# reads `y.label`, and no `except` is near. This is no matter of speed: the compiled program fails
# where the plain one works. A break that really happens inside a `try`, as in `guarded`, keeps the
# result: the rest is left to Python, with its `except` or `finally`.
#
# `hasattr(y, "label")` is decided while Dynamo reads, without a break, and repairs it.

# %% [markdown]
# ## The usual tools, and where they mislead
#
# torch has three tools of its own. `torch._dynamo.explain(fn)(x)` counts graphs and breaks.
# `counters["graph_break"]` in `torch._dynamo.utils` counts reasons. `fullgraph=True` refuses a
# call that needs more than one graph.
#
# **Predict.** You know that `branch` and `settle` have one break each. What will `explain` say
# of `settle`, which has no graph at all?


# %%
from torch._dynamo.utils import counters


def masked_mean(x):
    kept = x[x > 0]
    return kept.mean() * 2


def ask(fn):
    reset_compiler()
    counters.clear()
    told = torch._dynamo.explain(fn)(x)
    reasons = len(counters["graph_break"])
    print(f"{fn.__name__}: explain {told.graph_break_count},", end=" ")
    print(f"counter {reasons}, really {len(explain_graph_breaks(fn, x))}")


# %% tags=["nbval-check-output"]
for fn in (branch, settle, masked_mean):
    ask(fn)

# %% [markdown]
# **Inspect.** `explain` takes one from the number of graphs: from none, that leaves −1, and no
# reason. The counter stays empty where a branch is the cause. Now `fullgraph=True`:

# %%
for fn in (branch, settle, masked_mean):
    try:
        torch.compile(fn, backend="eager", fullgraph=True)(x)
        print(f"{fn.__name__}: fullgraph=True does not complain")
    except torch._dynamo.exc.Unsupported:
        print(f"{fn.__name__}: fullgraph=True refuses")

# %% [markdown]
# **Explain.** torch 2.7 refuses all three. Newer ones (2.11 and 2.14 were tried) let `masked_mean`
# pass, although it breaks when compiled as usual: there `fullgraph=True` also switches on a way to
# trace `.item()` and masks that is off otherwise. It answers "can this be one graph?", and not "is
# it one now?".
#
# The log, `TORCH_LOGS="graph_breaks"` in the environment, tells of `settle` too. Of its 20 lines,
# shortened:
#
# ```
# [0/0] [__graph_breaks] Graph break in user code at lesson.py:8
# [0/0] [__graph_breaks] Graph Break Reason: Failed to handle graph break gracefully. Skipping ...
# [0/0] [__graph_breaks] Data-dependent branching
# ```
#
# But it tells one cause once for each function on the way to it: you see why below.
# `explain_graph_breaks` listens where Dynamo decides, and counts causes: one for each line.

# %% [markdown]
# ### What looks like a break and is none
#
# **Predict.** NumPy, a dataclass, and a line for plain Python only. Which of them breaks?

# %%
import dataclasses

import numpy as np

log = logging.getLogger("lesson")


@dataclasses.dataclass
class Box:
    value: torch.Tensor
    size: int = 1


def scaled(x):
    return torch.from_numpy(np.tanh(x.cpu().numpy())) * 2


# %%
def boxed(x):
    box = dataclasses.replace(Box(x), size=3)
    return box.value * box.size


def talks_in_eager(x):
    if not torch.compiler.is_compiling():
        log.info("mean %s", x.mean())
    return torch.relu(x)


# %% tags=["nbval-check-output"]
for fn in (scaled, boxed, talks_in_eager):
    print(f"{fn.__name__}: breaks {len(explain_graph_breaks(fn, x))}")

# %% [markdown]
# **Explain.** None. Dynamo translates many NumPy functions into torch's, follows dataclasses,
# and knows that it is compiling, so the last branch is decided while it reads. Lists of things
# that "break the graph" grow old quickly: ask, for the torch that you have.

# %% [markdown]
# ## Where a break hurts most: deep in a call
#
# **Predict.** `outer` calls `middle`, which calls `inner`, which has one break. How many graphs?


# %%
def inner(x):
    y = x * 2
    torch._dynamo.graph_break()
    return y + 1


def middle(x):
    return inner(x) * 3


def outer(x):
    return middle(torch.sin(x)).cos()


# %%
deep = explain_graph_breaks(outer, x)
deep

# %% tags=["nbval-check-output"]
print("breaks:", len(deep), " graphs:", deep.graphs, " met:", deep[0].count, "times")
print(" → ".join(deep[0].call_paths[0]))

# %% [markdown]
# **Explain.** One cause, five graphs. Dynamo follows calls into `middle` and `inner` as if it
# were one function, but can only go on at a line of the function that it started with. So it
# cuts `outer` at its call, starts again in `middle` and cuts it too, and then in `inner`. That is
# also why the log tells this break three times. A break in a helper that everything calls cuts
# everything.
#
# Newer versions can go on inside nested functions; it is off unless you ask for it:

# %%
if hasattr(torch._dynamo.config, "nested_graph_breaks"):
    with torch._dynamo.config.patch(nested_graph_breaks=True):
        print("graphs:", explain_graph_breaks(outer, x).graphs)
else:
    print("This torch has no nested_graph_breaks.")

# %% [markdown]
# ### A layer called in a loop
#
# **Predict.** The commonest real case: one layer checks its values, and the model calls its
# layers in a loop. The break is not in the loop's own lines. Which function is skipped?


# %%
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(8, 8)

    def forward(self, x):
        y = torch.relu(self.mix(x))
        if y.isnan().any():
            raise ValueError("not a number")
        return x + y


# %%
class Stack(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layers = nn.ModuleList(layer() for _ in range(3))
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        y = torch.tanh(x)
        for layer in self.layers:
            y = layer(y)
        return torch.softmax(self.head(y), -1)


class Unchecked(Layer):
    def forward(self, x):
        return x + torch.relu(self.mix(x))


# %% tags=["nbval-check-output"]
for kind in (Layer, Unchecked):
    found = explain_graph_breaks(Stack(kind).to(device), x)
    print(f"{kind.__name__}: breaks {len(found)}, graphs {found.graphs}")
    for one in found:
        print(f"{one.effect} of {one.function} at: {one.source_line}")

# %% [markdown]
# **Explain.** The outer one. Dynamo follows the call, so the break stands in *its* loop: `tanh`,
# the loop and the head run uncompiled, and each layer by itself in two graphs, which the three
# share. The repair: check once, outside, what the model returns (a NaN stays one through all
# layers). If a layer cannot be mended, compile each layer instead of the model.

# %% [markdown]
# ### Leave a function out on purpose
#
# Some code should not be traced: a tokenizer, a plot, a search through a dict. With
# `torch.compiler.disable` it costs one break instead of many.
#
# **Predict.** The first form leaves out what the function calls as well; `recursive=False` does
# not. How many graphs each?


# %%
def double_tanh(x):
    return torch.tanh(x) * 2


@torch.compiler.disable
def left_out(x):
    return double_tanh(x) + 1


@torch.compiler.disable(recursive=False)
def only_itself(x):
    return double_tanh(x) + 1


# %% tags=["nbval-check-output"]
def leaves_out(x):
    return left_out(x.sin()).cos()


def leaves_out_one(x):
    return only_itself(x.sin()).cos()


for fn in (leaves_out, leaves_out_one):
    found = explain_graph_breaks(fn, x)
    print(f"{fn.__name__}: breaks {len(found)}, graphs {found.graphs}")

# %% [markdown]
# **Explain.** With `recursive=False` the function itself is Python's, and `double_tanh` is
# compiled on its own: a third graph. Each call of such a function is a cut, so call it once,
# before or after what is compiled, and not in a loop.

# %% [markdown]
# ### Insist: fullgraph and error_on_graph_break
#
# Once a function has no break, keep it so. `fullgraph=True` is a promise for the whole call: a
# break becomes an error, with the reason, in place of a silent cost. Where you accept some breaks,
# but none in the hot part, torch 2.9 and later have `error_on_graph_break`.
#
# **Predict.** `mostly` has a break of its own, accepted. Which call of it stops, and at which line?


# %%
def hot(x):
    y = torch.relu(x)
    torch._dynamo.graph_break()  # in the hot part
    return y * 2


def hot_whole(x):
    return torch.relu(x) * 2


def mostly(x, part):
    y = x + 1
    torch._dynamo.graph_break()  # accepted
    with torch._dynamo.error_on_graph_break(True):
        return part(y)


# %%
def insist(part):
    reset_compiler()
    try:
        torch.compile(mostly, backend="eager")(x, part)
        print(f"{part.__name__}: passes, with the accepted break")
    except torch._dynamo.exc.Unsupported as error:
        where = error.real_stack[-1]
        print(f"{part.__name__}: stops in {where.name} at: {where.line}")


if hasattr(torch._dynamo, "error_on_graph_break"):
    insist(hot)
    insist(hot_whole)
else:
    print("This torch has no error_on_graph_break; fullgraph=True is what there is.")

# %% [markdown]
# ## Five breaks, one by one
#
# A model that sorts messages by urgency, written by somebody who was in a hurry. `keep` says
# which words are real and which only fill up the row.


# %%
class Layers(nn.Module):
    def __init__(self, words=1000, width=64, labels=4):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.mix = nn.Linear(width, width)
        self.head = nn.Linear(width, labels)

    def scale(self, h):
        return h / h.abs().max().item()

    def attend(self, h, keep):
        scores = h @ h.transpose(1, 2) / h.shape[-1] ** 0.5
        if not keep.all():
            scores = scores.masked_fill(~keep[:, None], -torch.inf)
        return torch.softmax(scores, -1) @ h


# %%
class Triage(Layers):
    def report(self, h):
        log.info("batch of %d", h.shape[0])

    def pool(self, h, keep):
        rows = []
        for one, mask in zip(h, keep, strict=True):
            rows.append(one[mask].mean(0))
        return torch.stack(rows)

    @torch.compiler.disable
    def calibrate(self, logits):
        return logits / 1.5

    def forward(self, tokens, keep):
        h = self.scale(self.embed(tokens))
        h = h + self.attend(h, keep)
        self.report(h)
        h = self.pool(F.gelu(self.mix(h)), keep)
        return self.calibrate(self.head(h))


# %% [markdown]
# **Predict.** Five lines break the graph. Which? One of them costs its whole function. Which?

# %%
triage = Triage().to(device).eval()
tokens = torch.randint(0, 1000, (4, 16), device=device)
keep = torch.arange(16, device=device) < tokens.new_tensor([[16], [9], [12], [5]])
explain_graph_breaks(triage, tokens, keep)


# %% [markdown]
# Each step below replaces one method, keeps the parameters, and asks again. It also compares with
# what the first model gives: a repair that changes the result is none.


# %%
def check(kind):
    model = kind().to(device).eval()
    model.load_state_dict(triage.state_dict())
    found = explain_graph_breaks(model, tokens, keep)
    same = torch.allclose(model(tokens, keep), triage(tokens, keep), atol=1e-6)
    print(f"{kind.__name__}: breaks {len(found)}, graphs {found.graphs}, same: {same}")
    return model


# %% tags=["nbval-check-output"]
_ = check(Triage)


# %% [markdown]
# **A number out of a tensor.** `.item()` asks for a Python number, and the GPU has to finish
# first. Dividing by a tensor gives the same. (`.item()` also cut the gradient; `detach` keeps
# that so.)


# %% tags=["nbval-check-output"]
class NumberStays(Triage):
    def scale(self, h):
        return h / h.abs().max().detach()


_ = check(NumberStays)


# %% [markdown]
# **A branch on values.** The branch saved a little work where nothing is to be masked. Masking
# nothing changes nothing, so do it always.


# %% tags=["nbval-check-output"]
class AlwaysMasks(NumberStays):
    def attend(self, h, keep):
        scores = h @ h.transpose(1, 2) / h.shape[-1] ** 0.5
        scores = scores.masked_fill(~keep[:, None], -torch.inf)
        return torch.softmax(scores, -1) @ h


_ = check(AlwaysMasks)


# %% [markdown]
# **A logger.** It is there for a reason: to delete it would be no repair. It needs only the
# shape, so it moves to the caller.


# %% tags=["nbval-check-output"]
class CallerLogs(AlwaysMasks):
    def report(self, h):
        pass


def sort_messages(model, tokens, keep):
    log.info("batch of %d", tokens.shape[0])
    return model(tokens, keep)


quiet = check(CallerLogs)
same = torch.equal(sort_messages(quiet, tokens, keep), quiet(tokens, keep))
print("called with its log line, same:", same)


# %% [markdown]
# **A mask that keeps some rows.** How many is known only when it runs, and it stands in a loop,
# so all of `pool` was left out. A mean over the kept words is a sum with weights 0 and 1, and
# needs no loop.


# %% tags=["nbval-check-output"]
class WeightsPool(CallerLogs):
    def pool(self, h, keep):
        weights = keep[..., None].to(h.dtype)
        return (h * weights).sum(1) / weights.sum(1)


_ = check(WeightsPool)


# %% [markdown]
# **A function that was left out.** One graph already, and yet one break: the last division is
# Python's. Nobody remembers why it was disabled; without it, nothing goes wrong.


# %% tags=["nbval-check-output"]
class Repaired(WeightsPool):
    def calibrate(self, logits):
        return logits / 1.5


repaired = check(Repaired)
strict = torch.compile(repaired, backend="eager", fullgraph=True)
same = torch.allclose(strict(tokens, keep), triage(tokens, keep), atol=1e-6)
print("fullgraph=True passes, same result:", same)

# %% [markdown]
# **Predict.** From eight graphs to one: how many launches fewer? Is it worth it?

# %%
total = break_cost(triage, repaired, tokens, keep, recorded="triage")
total

# %% tags=["nbval-check-output"]
print("graphs:", total.broken.graphs, "→", total.repaired.graphs)
print("fewer launches:", total.repaired.launches < total.broken.launches)

# %% [markdown]
# **Explain.** Only two, from 12 to 10. Matrix products and reductions need
# kernels of their own in both forms; all that merged is small steps between them. (The upper row
# does not even have the launches of `pool`, which was not compiled.)
#
# Worth it? Yes, but not for the launches: look at the recorded times. Tensors this small are
# nothing to an H200. What went away is work for the host, guards and calls between eight graphs
# and a loop in Python, and the wait for the GPU at `.item()`, at `if not keep.all()` and at each
# mask.
#
# In your own code go in this order (here we went from the top down): first the breaks that change
# behaviour, then whole functions, then those in what is called most; change one
# thing; compare; ask again.

# %% [markdown]
# ## Explore it
#
# A function with two breaks. First the view as it starts, without controls.


# %%
def rescale(x, center=True):
    y = torch.sigmoid(x)
    if center:
        y = y - y.mean()
    top = y.abs().max().item()
    if y.sum() > 0:
        y = y * 2
    return y / top


# %%
from helpers import break_view

break_view(rescale, shape=(4, 16, 8), device=device)

# %% [markdown]
# Now with controls. Edit the text, then press **Tab** (or *Find the breaks*). What changed is
# said in words. Before each of these, say how many breaks and graphs there will be:
#
# - write `top = y.abs().max()`, without `.item()`
# - replace the second `if` and the line after it by `y = torch.where(y.sum() > 0, y * 2, y)`
# - untick `center`: is that `if` a break?
# - load the samples one after the other, and repair each
#
# The text must hold all that it needs (its helpers, its imports beyond `torch`); its arguments are
# random tensors. For a model of your own, call `explain_graph_breaks(model, ...)` in a cell.

# %% [markdown]
# <details><summary>What you should have seen</summary>
#
# - without `.item()`: one break fewer
# - `torch.where`: no break is left, one graph
# - `center`: no change; its value is known before the call, so it is a guard
# - most samples split in two, with 2 graphs. The loop costs most: no graph at all. The missing
#   attribute is no matter of cost: the compiled code stops with an error. The break deep in a call
#   is one line and five graphs. The last sample has no break
# </details>

# %% tags=["widget"]
from helpers import break_panel

break_panel(rescale, shape=(4, 16, 8), device=device)

# %% [markdown]
# And this is everything that the torch installed here can give as a reason (2.7 has no such
# list). Search it for a word from a message that you met; where we know a repair, it is beside it.
# As a table, for one word:

# %%
from helpers import registry_view

registry_view("branch")

# %% tags=["widget"]
from helpers import registry_panel

registry_panel()

# %% [markdown]
# ## Check yourself
#
# **Predict.** Here is a function that you have not seen. Say, before you run the cell below it:
# how many breaks, at which lines, with which effect, and how many graphs? (Arguments by keyword
# are given in `kwargs`.)


# %%
def rank(x, top=3):
    y = torch.softmax(x, -1)
    if x.shape[0] > 2:
        y = y * 2
    for _ in range(top):
        y = torch.relu(y - 0.01)
    best = y.max().item()
    names = [str(n) for n in range(top)]
    y = y / best * len(names)
    return y - y[y > 1].mean()


# %% tags=["nbval-check-output"]
found = explain_graph_breaks(rank, x, kwargs={"top": 5})
print("graphs:", found.graphs)
for one in found:
    print(f"{one.effect}: {one.source_line}")

# %% [markdown]
# **Your turn.** Repair it here: no break, one graph, the same result. Change one line, run, read.
# (The `if` on the shape is written out for our four rows, to keep it short.)


# %%
def my_rank(x, top=3):
    y = torch.softmax(x, -1) * 2
    for _ in range(top):
        y = torch.relu(y - 0.01)
    best = y.max().item()
    y = y / best * top
    return y - y[y > 1].mean()


found = explain_graph_breaks(my_rank, x, kwargs={"top": 5})
same = torch.allclose(my_rank(x, 5), rank(x, 5), atol=1e-5)
print(f"breaks {len(found)}, graphs {found.graphs}, same as rank: {same}")

# %% [markdown]
# <details><summary>1. Which lines of <code>rank</code> break, and why only these?</summary>
#
# `.item()`, and the mask in the last line, both split. The first `if` asks for a shape, the loop
# has a count that is known, and the list holds Python's own values: all decided while Dynamo
# reads.
# </details>
#
# <details><summary>2. What if the line with <code>.item()</code> stood inside the
# loop?</summary>
#
# Then Dynamo would have to go on in the middle of a loop, and the whole of `rank` would be
# skipped: not one graph, although the loop is only five rounds.
# </details>

# %% [markdown]
# <details><summary>3. A repair of <code>rank</code></summary>
#
# `best = y.max()` without `.item()`. And for the last line: `kept = (y > 1).to(y.dtype)`, then
# `return y - (y * kept).sum() / kept.sum()`, as in `WeightsPool`.
# </details>
#
# <details><summary>4. A service cleans its text with a library, then runs twenty layers, and logs
# one line in between. The layers must never break. <code>fullgraph</code>,
# <code>error_on_graph_break</code> or <code>disable</code>: which for what?</summary>
#
# `disable` for the cleaning: it is not to be traced, and it is one call, at the edge.
# `error_on_graph_break(True)` around the layers: the break at the log stays accepted, one in the
# layers is an error. `fullgraph=True` would refuse the log as well; use it where the layers are
# compiled alone, as in a test. It is no proof for calls without it: it reads masks and `.item()`
# another way.
# </details>

# %% [markdown]
# ## Recap
#
# - A break costs traffic for what lies across it (counts for big tensors), and work for the host
#   at each call (counts for all others).
# - A card names line, cause and effect: split, rest left to Python, or whole function skipped. An
#   attribute that may be missing, read in a `try`, even changes what the code does.
# - `explain` can say −1, the counter may stay empty, `fullgraph=True` traces differently; NumPy
#   and dataclasses are no breaks.
# - `fullgraph` insists on one graph, `error_on_graph_break` on a part, `disable` leaves out a
#   function on purpose; a break deep in a call cuts every caller, and in a loop's callee skips the
#   function with the loop.
# - Repair one at a time: keep values in tensors, do it always, move it to the caller, weights for
#   masks. Compare results each time.

# %% [markdown]
# ## In practice
#
# - Look for skipped functions first: one of them costs more than several splits.
# - Printing and logging: outside the compiled call, or behind
#   `if not torch.compiler.is_compiling():` if plain Python is the only place for it.
# - `.item()`, `.tolist()`, `float(t)`, `if t:` all ask for a value. Keep it a tensor for as long as
#   you can, and ask once, at the end, outside.
# - Compile the part that computes, not the loop that loads, logs and saves.
# - Once a model is clean, put `assert not len(explain_graph_breaks(model, ...))` into a test.
#   `fullgraph=True` alone lets masks and `.item()` pass that break without it.
# - Not every break is worth a repair: ask `break_cost` before you rewrite much. (It refuses two
#   forms whose results differ.)

# %% [markdown]
# ## Further reading
#
# - [Working with graph breaks](https://docs.pytorch.org/docs/main/user_guide/torch_compiler/compile/programming_model.fullgraph_true.html):
#   torch's own strategies
# - [Toggling error_on_graph_break](https://docs.pytorch.org/docs/stable/compile/programming_model.error_on_graph_break.html)
# - [Nested graph breaks](https://docs.pytorch.org/docs/stable/compile/programming_model.nested_graph_breaks.html):
#   why one break becomes many graphs
# - [Graph break site](https://meta-pytorch.org/compile-graph-break-site/): a page for each number
#   such as GB0059
