# ---
# title: Predict recompiles: guards, sizes, numbers and the limit
# minutes: 45
# needs: lesson 02
# ---

# %% [markdown]
# # Predict recompiles: guards, sizes, numbers and the limit
#
# {{facts}}
#
# A compiled function is fast until a call does not fit what was compiled. Then it compiles again,
# for seconds, or gives up and runs plain Python without an error. Here you learn to foresee which.

# %% [markdown]
# ## What you'll do
#
# Read reports of recompiles, break and mend an epoch's end, a learning rate and a set of
# sentences of many lengths, run into the limit on purpose, and play a game against the counters.

# %% [markdown]
# ## What you'll learn
#
# - say from a failed guard which argument made a call compile again
# - predict what new sizes do, and what `dynamic=True`, `False` and `None` change
# - tell which Python values cost one compilation, and which cost one each
# - choose between buckets and dynamic shapes, with padding and compilations counted
# - see the limit coming, and make torch say when it is reached

# %% [markdown]
# ## What you'll need
#
# Lesson 02, or to know that a captured graph is used again only while its *guards* hold. Nothing
# here needs a GPU, and nearly nothing is compiled for speed: we count.

# %% [markdown]
# ## Setup

# %% tags=["parameters"]
device = "auto"

# %%
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from helpers import begin_lesson, outcomes_view, trace_recompiles, would_reuse

device = begin_lesson("04", device=device)
torch.manual_seed(0)


def rows(count):
    return torch.randn(count, 3, device=device)


# %% [markdown]
# ## Guards are assumptions
#
# A graph is made for one call, and noted with it is what was taken for granted: the guards. The
# next call is checked against them. `trace_recompiles(fn, calls)` makes the calls in order and
# says for each what happened. No machine code is made: what was captured runs op by op, so it
# takes seconds, and says nothing about speed.


# %%
def soften(x, sharp=False):
    y = torch.softmax(x, -1)
    return y.square() if sharp else y


# %% [markdown]
# **Predict.** Five calls, in this order. Write down for each: does it compile, or reuse a graph?
#
# 1. `soften(x)` 2. with other numbers 3. `sharp=True` 4. in `float64` 5. the first call again

# %%
x = rows(4)
calls = [(x, False), (x + 1, False), (x, True), (x.double(), True), (x, False)]
report = trace_recompiles(soften, calls)
report

# %% tags=["nbval-check-output"]
print([call.outcome for call in report.calls])
print("compilations:", report.compiles)

# %% [markdown]
# **Inspect.** Calls are counted from 0. Each recompile has a row: which guard failed, in torch's
# words and in plain ones, whether it will go on, and what would repair it. When several graphs are
# there, torch tries all of them; the report names the guard of the one that came closest. All of
# them are here, those of the newest graph first:

# %%
for one in report.recompiles:
    print(f"call {one.call_index}: {one.all_guards}")

# %% [markdown]
# **Explain.** A new graph does not replace the old one. There are now three graphs of `soften`,
# side by side, and a call uses one whose guards all hold: so the fifth call reuses the first graph.
# That is why a program may alternate between two cases for ever and pay only twice.
#
# `would_reuse` asks the same question about a call that is not made. **Predict** both: numbers that
# are new, with `sharp`; and float64 without it.

# %% tags=["nbval-check-output"]
print("x - 5, sharp:    ", would_reuse(report, (x - 5, True)))
print("float64, soft:   ", would_reuse(report, (x.double(), False)))

# %% [markdown]
# Each half of the second call was seen before, but never both together. Guards belong to a graph:
# two arguments with two cases each can need four graphs. What the code never reads has no guard,
# so a debugging note that is only passed along costs nothing.

# %% [markdown]
# ## Sizes
#
# 27 rows in batches of 8, as most training loops have them. In the second epoch there are 25.


# %%
def batches(count):
    data = TensorDataset(torch.randn(count, 3))
    return [(x.to(device),) for (x,) in DataLoader(data, batch_size=8)]


epochs = batches(27) + batches(25)
head = nn.Linear(3, 2).to(device)
print([len(x) for (x,) in epochs])


# %%
def score(x):
    return head(x).log_softmax(-1)


# %% [markdown]
# **Predict.** Eight batches. Which of them compile? A second size makes torch suspect that this
# size varies: what might it do then?

# %%
ragged = trace_recompiles(score, epochs)
ragged

# %% tags=["nbval-check-output"]
for (x,), call in zip(epochs, ragged.calls, strict=True):
    print("rows:", len(x), call.outcome)

# %% [markdown]
# **Explain.** The first graph is made for exactly 8 rows. At 3 rows torch does not make a second
# exact one: it *promotes* the size that differed to a *dynamic* one, a number that stays open. The
# new graph serves any number of rows from 2 on.
#
# From 2 on: **0 and 1 are special.** A tensor of one row may be broadcast, and one without rows
# has nothing to compute, so code for "any size" may be wrong for them. The open graph has a guard
# such as `2 <= x.size()[0]`, and the last batch of one row fails it. Its own graph is for one row
# only and opens nothing. **Predict** the rows 8, 1, 5, 7, and then 1, 2, 3.


# %%
def double(x):
    return torch.relu(x) * 2


# %% tags=["nbval-check-output"]
for order in ((8, 1, 5, 7), (1, 2, 3)):
    found = trace_recompiles(double, [(rows(size),) for size in order])
    print(order, [call.outcome for call in found.calls])

# %% [markdown]
# The rule: a size that differs from an earlier one is opened, unless it is 0 or 1 itself.
#
# So this epoch's end costs two compilations in the middle of training. With `drop_last=True` in
# the `DataLoader`, or with the last batch padded, it costs none.

# %% tags=["nbval-check-output"]
even = [args for args in epochs if len(args[0]) == 8]
print("with drop_last, compilations:", trace_recompiles(score, even).compiles)

# %% [markdown]
# ### What `dynamic=` does
#
# `torch.compile(fn, dynamic=...)` takes `None` (the default), `True` or `False`.
#
# **Predict.** The sizes 8, 8, 5, 3, 1, 0, 8. How often does each setting compile?

# %%
sizes = (8, 8, 5, 3, 1, 0, 8)
calls = [(rows(size),) for size in sizes]
settings = {}
for value in (None, True, False):
    given = {"dynamic": value}
    found = trace_recompiles(double, calls, compile_options=given)
    settings[f"dynamic={value}"] = found
outcomes_view(settings, [f"{size} rows" for size in sizes])

# %% tags=["nbval-check-output"]
for name, one in settings.items():
    print(f"{name:<13} compilations: {one.compiles}")

# %% [markdown]
# **Explain.**
#
# - `None`: exact first; what was seen to vary is opened. One compilation is wasted on the first
#   size, and sizes that never vary stay exact, which lets torch write simpler code for them.
# - `True`: every size is open from the first call on, even one that never varies. It does not mean
#   "never compiles again": 0 and 1 are still special, an `if` on a size adds a guard of its own,
#   and a size that unrolls a loop is still fixed.
# - `False`: nothing is ever opened. Each new size is a graph, until the limit below.

# %% [markdown]
# ### Say which size varies
#
# `mark_dynamic` opens one size of one tensor, and leaves the others exact. **Predict.** Only the
# first of three calls is marked. How many compilations?

# %% tags=["nbval-check-output"]
first = rows(8)
torch._dynamo.mark_dynamic(first, 0)
marked = trace_recompiles(double, [(first,), (rows(5),), (rows(3),)])
print([call.outcome for call in marked.calls])

# %% [markdown]
# **Explain.** One. The mark tells torch at the first call what it would have learnt at the second.
# It is a promise, too. Here torch cannot keep the number of rows open, and fixes it to 8:


# %% tags=["nbval-check-output"]
def pinned(x):
    return x.view(8, -1)


[call] = trace_recompiles(pinned, [(first,)]).calls
print(call.outcome, "|", str(call.error).split("!")[0])

wish = rows(8)
torch._dynamo.maybe_mark_dynamic(wish, 0)
print("maybe:", trace_recompiles(pinned, [(wish,)]).calls[0].outcome)

# %% [markdown]
# Unmarked, it would be compiled for 8 rows without a word. `maybe_mark_dynamic` only asks for an
# open size, and takes a fixed one. And a mark on a size of 1 does not help: that graph is for 1.

# %% [markdown]
# ## Python values, and what the call does not show
#
# Sizes are numbers that torch finds in tensors. Numbers, words and attributes that you pass
# yourself are guarded by value, and not all of them are opened.
#
# **Predict.** Four calls each, with a new value each time. Which kinds compile at every call?


# %%
def shift(x, by):
    return x + by


def shift_small(x, by):
    return x + by if by < 2 else x


def repeat(x, times):
    for _ in range(times):
        x = torch.sin(x)
    return x


# %%
def windows(x, size):
    return x.unfold(0, size, 1)


def choose(x, name):
    return torch.relu(x) if name == "relu" else torch.tanh(x)


def ignore(x, note):
    return x + 1


# %%
x = rows(8)
kinds = {
    "float": (shift, (0.5, 1.5, 2.5, 3.5)),
    "float, if": (shift_small, (0.5, 1.5, 2.5, 3.5)),
    "int": (shift, (3, 4, 1, 0)),
    "int, loop": (repeat, (2, 3, 4, 5)),
    "int, window": (windows, (2, 3, 4, 5)),
    "word": (choose, ("relu", "tanh", "gelu", "silu")),
    "never read": (ignore, ("a", "b", "c", "d")),
}
values = {
    kind: trace_recompiles(fn, [(x, value) for value in given])
    for kind, (fn, given) in kinds.items()
}
outcomes_view(values, [f"value {place}" for place in range(1, 5)])

# %% tags=["nbval-check-output"]
print({kind: one.compiles for kind, one in values.items()})

# %% [markdown]
# **Explain.** A float or an int that is only calculated with is opened at its second value, like a
# size; once open, an int may even be 0 or 1. An `if` on it adds a guard: one more graph, for the
# other side.
#
# Some numbers cannot be opened, since the operation must know them as **plain numbers**: how often
# a loop is unrolled, a window, an axis (`x.softmax(dim)`), a repeat count (`torch.cat([x] * n)`),
# a probability (`F.dropout(x, p)`, a float!). Each value is a graph. A slice `x[:n]` can be opened.
#
# A word is always compared as a whole; `"gelu"` and `"silu"` even give equal graphs, and torch
# makes both.

# %% [markdown]
# ### Attributes of a model
#
# **Predict.** Two separate runs of four calls. Before each call, one attribute gets a new value:
# in the first run `heat`, a float; in the second `seen`, an int.


# %%
class Annealed(nn.Module):
    def __init__(self):
        super().__init__()
        self.heat, self.seen = 1.5, 5

    def forward(self, x):
        return x * self.heat + self.seen


def changing(name, values):
    model = Annealed()

    def call_with(value):
        def call(compiled):
            setattr(model, name, value)
            return compiled(x)

        return call

    return trace_recompiles(model, [call_with(value) for value in values])


# %%
heat, seen = changing("heat", (1.5, 2.5, 3.5, 4.5)), changing("seen", (5, 6, 7, 8))
outcomes_view({"heat": heat, "seen": seen}, [f"value {place}" for place in range(1, 5)])

# %% [markdown]
# **Explain.** A float attribute is opened like an argument. For an int attribute it depends: torch
# 2.7 opens it, 2.11 and 2.14 keep it by value. There, a counter in a model compiles at every
# call. Keep such a count in a buffer (`register_buffer`), which is a tensor, or outside `forward`.
# A list that grows in `forward` compiles at every call in all three: its length is guarded.

# %% [markdown]
# ### Train or eval, grad mode, dtype, layout
#
# **Predict.** The tensor has the same 4 by 4 shape in all seven calls. How many graphs?


# %%
class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        return self.drop(x) * 2


noisy, square = Noisy(), torch.randn(4, 4, device=device)


def validating(compiled):
    noisy.eval()
    with torch.no_grad():
        compiled(square)
    noisy.train()


# %%
def quietly(compiled):
    with torch.no_grad():
        compiled(square)


turned, short = square.t(), square.bfloat16()
calls = [(square,), quietly, validating, (turned,), (short,), (square,), validating]
modes = trace_recompiles(noisy, calls)
modes

# %% tags=["nbval-check-output"]
print("graphs:", modes.compiles)
print([call.outcome == "reused" for call in modes.calls])
wide = [(torch.randn(4, size)[:, :4],) for size in (4, 8, 12, 16)]
print("strides:", [call.outcome for call in trace_recompiles(double, wide).calls])

# %% [markdown]
# **Explain.** Five: in training, under `no_grad`, in `eval()`, transposed, in bfloat16. **Train and
# eval** is the commonest recompile in a real loop: each layer that behaves differently has a guard
# such as `training == True`. It comes once; run both modes before you measure.
#
# A transposed tensor has other *strides*. It is shown as promoted, because strides can be opened,
# too: parts of wider and wider tensors need two graphs. A dtype is never opened. Cast once, and
# bring tensors into one layout once, before the compiled part.

# %% [markdown]
# ### A learning rate that recompiles
#
# An optimizer's step can be compiled too. A scheduler changes the learning rate after each step.
#
# **Predict.** Six steps. How often does it compile if the rate is a float? If it is a tensor?


# %%
def six_steps(rate, dynamic=None):
    layer = nn.Linear(3, 2)  # on the CPU: guards are the same everywhere
    for parameter in layer.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer = torch.optim.Adam(layer.parameters(), lr=rate)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9)

    def update():
        optimizer.step()

    def step(compiled):
        compiled()
        scheduler.step()

    return trace_recompiles(update, [step] * 6, compile_options={"dynamic": dynamic})


# %%
as_float, as_tensor = six_steps(0.1), six_steps(torch.tensor(0.1))
rates = {"float": as_float, "tensor": as_tensor}
rates["float, dynamic=False"] = six_steps(0.1, dynamic=False)
outcomes_view(rates, [f"step {number}" for number in range(1, 7)])

# %% tags=["nbval-check-output"]
for name in ("float", "tensor"):
    print(name, [call.graphs for call in rates[name].calls])

# %% [markdown]
# **Explain.** We count graphs here, not compilations: `step` is wrapped in small functions of
# torch, and Dynamo compiles some that hold no operation.
#
# A float costs one more graph, not one per step: it is opened like any float. With
# `dynamic=False` the old trouble is back: 6 graphs in torch 2.11 and 2.14 (2 in torch 2.7). With
# a tensor there is none in any case: its number is never guarded.

# %% [markdown]
# ## Bucketing lengths against dynamic shapes
#
# A server gets sentences, one at a time. Most are short, a few are long:

# %%
from helpers import sentence_lengths

lengths = sentence_lengths(120)
print("the first:", lengths[:12])

# %% tags=["nbval-check-output"]
print("different lengths:", len(set(lengths)), " longest:", max(lengths))

# %% [markdown]
# You may compile for each length, for any length, or round lengths up to a few *buckets* and fill
# with padding. The model must not care about padding: a mask keeps attention and the mean away
# from it.

# %%
import inspect

from helpers import SentenceScorer, sentence_load

load = sentence_load(device)  # on a card larger, so that the card is what takes time
scorer = load.scorer()
print(load.words)
print(inspect.getsource(SentenceScorer.forward))

# %% tags=["nbval-check-output"]
for masked in (True, False):
    bare, filled = (scorer(*load.padded(20, size), masked=masked) for size in (20, 64))
    same = torch.allclose(bare, filled, atol=1e-2)
    print(f"masked={masked}: padding changes the score: {not same}")

# %% [markdown]
# `bucket_lengths` rounds up, and a plan knows which share of its tokens is padding:

# %% tags=["nbval-check-output"]
from helpers import bucket_lengths, usual_plans

print(bucket_lengths([6, 19, 33, 64], buckets=[16, 32, 64]))
plans = usual_plans(lengths)
for plan in plans:
    print(f"{plan.name:<28} {len(plan.sizes):>3} sizes, {plan.waste:.0%} padding")

# %% [markdown]
# **Predict.** 120 calls with each plan. How often does each compile? Is there one that is best on
# both counts? Buckets are compiled with `dynamic=False`, and once with the default ("automatic"):
# what will differ?

# %%
from helpers import count_plans, progress

with progress("eight plans, 120 calls each", expected_s=14):
    counted = count_plans(scorer, load.padded, plans)

# %%
from helpers import bucketing_view, recorded_times, time_plans

times = recorded_times()
if device == "cuda":
    fit = [one.plan for one in counted if not one.eager_calls]
    with progress("timing the plans on this card", expected_s=60):
        times = time_plans(scorer, load.padded, fit, rows=load.rows, what=load.words)
bucketing_view(counted, times)

# %% tags=["nbval-check-output"]
for one in counted:
    eager = f"  calls run eager: {one.eager_calls}" if one.eager_calls else ""
    print(f"{one.plan.name:<28} compilations: {one.compiles}{eager}")

# %% [markdown]
# **Inspect.** To the right is more compiling, upwards more padding. The cross is a plan that gave
# up: most of its calls ran in plain Python. Counts and padding were found here; the times are those
# of a GPU, with the load that the caption names.
#
# **Decide.** Padding costs at every call, a compilation once. Compare two times: "exact lengths,
# dynamic=True" has no padding and code for any size; a bucket plan has padding and code for exact
# sizes. Take buckets only if their time per *real* token is lower, for long enough to earn their
# compilations back. The intervals are those of one run: in two runs on the H200 the same plan moved
# by up to 5%, so take less as no difference.

# %% [markdown]
# **Explain.** By the two counts alone dynamic shapes win. Two things can speak for buckets. Round
# sizes: recorded on the H200, powers of two beat exact lengths in spite of their padding, and
# multiples of 64 beat quantile buckets, which pad less. And CUDA graphs (`mode="reduce-overhead"`)
# are recorded for one size each: 52 lengths are 52 recordings.
#
# Code for exactly one size did not help here: "powers of two, automatic" opened its size at the
# second bucket and was as fast, with two compilations instead of six. Set `dynamic=False` for
# buckets only if your own times show a gain.

# %% [markdown]
# ## The limit
#
# **Predict.** `repeat` from above makes a graph for each count. We call it with 2, 3, 4, up to 13.
# What happens at the end, and what does the *first* call's input do afterwards?

# %%
counts = range(2, 14)
limited = trace_recompiles(repeat, [(x, count) for count in counts])
limited

# %% tags=["nbval-check-output"]
print("compilations:", limited.compiles)
print("ran eager: times =", [counts[place] for place in limited.eager_calls])
for count in (2, 9, 10):
    print(f"times={count} reuses a graph:", would_reuse(limited, (x, count)))

# %% [markdown]
# **Explain.** torch keeps 8 graphs of one function. The ninth is refused; from then on a call that
# fits one of the eight still runs compiled, and every other runs as plain Python. Nothing fails:
# the program is slower, and right. All you get is this, once, in the log:

# %%
from helpers import reset_compiler

reset_compiler()
warned = torch.compile(repeat, backend="eager")
for count in counts:
    warned(x, count)

# %% [markdown]
# Five lines: the limit, the function with its place, the guard that failed last, how to see all
# reasons (`TORCH_LOGS="recompiles"`), and a link. The next cells hit the limit, too; we switch
# these lines off for them.

# %%
import logging

torch._logging.set_logs(dynamo=logging.ERROR)

# %% [markdown]
# **Predict.** Twelve models of one class, each with another width, each compiled by itself and
# called once. How many graphs? And if all have the same width? If one outer model calls them?


# %%
class Head(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.out = nn.Linear(3, width)

    def forward(self, x):
        return self.out(x)


class Outer(nn.Module):
    def __init__(self, heads):
        super().__init__()
        self.heads = nn.ModuleList(heads)

    def forward(self, x):
        return [head(x) for head in self.heads]


# %% tags=["nbval-check-output"]
def graphs_of(models):
    reset_compiler()
    made = []

    def note(graph_module, inputs):
        made.append(graph_module)
        return graph_module.forward

    for model in models:
        torch.compile(model.to(device), backend=note)(x)
    return len(made)


print("12 widths:    ", graphs_of([Head(width) for width in range(2, 14)]))
print("one width:    ", graphs_of([Head(4) for _ in range(12)]))
print("an outer model:", graphs_of([Outer(Head(width) for width in range(2, 14))]))

# %% [markdown]
# **Explain.** Two reasons together. Graphs belong to the code of `forward`, which all twelve share,
# so the limit is shared. And a **parameter's size** is guarded and never opened, so each width
# needs its own graph: four of the models never run compiled. Models of one width share a graph.
# The repair is to compile the outer model: its one graph has all twelve heads inside.

# %% [markdown]
# ### Make torch say so
#
# In production nobody reads warnings. Two settings turn silence into an error. For a whole program,
# write `torch._dynamo.config.fail_on_recompile_limit_hit = True` once, at its start; here it is set
# for a few lines.

# %% tags=["nbval-check-output"]
reset_compiler()
strict = torch.compile(repeat, backend="eager")
settings = torch._dynamo.config.patch(fail_on_recompile_limit_hit=True)
try:
    with settings:
        for count in counts:
            strict(x, count)
except Exception as error:
    print(f"times={count}:", type(error).__name__)

# %% [markdown]
# Once all cases that you expect have been called, allow no further compilation at all:

# %% tags=["nbval-check-output"]
from helpers import compilation_count

reset_compiler()
served = torch.compile(double, backend="eager")
served(rows(8)), served(rows(5))  # warmed up: any number of rows from 2 on
with torch.compiler.set_stance("fail_on_recompile"):
    print(f"{len(served(rows(30)))} rows: fine")
    try:
        served(rows(1))
    except RuntimeError as error:
        print("1 row:", str(error).split(". ")[0])
before = compilation_count()
with torch.compiler.set_stance("eager_on_recompile"):
    print(f"{len(served(rows(1)))} row, compilations: {compilation_count() - before}")

# %% [markdown]
# **Explain.** Use the first in tests and in training, `"fail_on_recompile"` in a server after its
# warm-up, and `"eager_on_recompile"` where a slow answer is better than none: it ran in plain
# Python.

# %%
torch._logging.set_logs()  # warnings are back

# %% [markdown]
# ## Explore it
#
# A game: a function, and a queue of calls. For each call, say what it will do before it runs.
# First a round to play on paper, so that it also shows where nothing runs.

# %%
from helpers import queue_view

queue_view(1, device=device)

# %% [markdown]
# Now with marks. Choose a prediction, press **Run this call**. The call is really made, and the
# counters decide. In later rounds the difference is in what a call does not show. In the last
# entry of *Round*, **Your own queue**, you write the function and add the calls. Try there, and
# look here afterwards:
#
# <details><summary>Sizes 1, 2, 3 in this order: is the first one wasted? And 2, 1, 3?</summary>
#
# 1, 2, 3: compiled, promoted, reused. The first graph serves one row only. 2, 1, 3: compiled,
# recompiled, promoted: the 1 opened nothing, so opening comes a call later.
# </details>
#
# <details><summary><code>scale</code> 2.0, 3.0, and then 1.0, 0.0 and the int 1: does an open
# number mean any number?</summary>
#
# Any float: 1.0 and 0.0 reuse the graph (only <code>nan</code> would not). The int 1 is of another
# type: recompiled.
# </details>
#
# <details><summary>How many calls does it take to reach the limit?</summary>
#
# Nine. For example <code>kind</code> a, b, c and so on: eight words are eight graphs, the ninth
# runs eager.
# </details>

# %% tags=["widget"]
from helpers import recompile_game

recompile_game(device=device)

# %% [markdown]
# ## Check yourself
#
# **Predict.** A function that you have not seen. Say for each of the eight calls: compiled, reused,
# promoted, recompiled or eager?


# %%
def window(x, size=2, kind="mean"):
    pieces = x.unfold(0, size, 1)
    return pieces.mean(-1) if kind == "mean" else pieces.amax(-1)


# %%
calls = [
    (rows(8),), (rows(8) + 1,), (rows(6),), (rows(7), 2),
    (rows(7), 2, "max"), (rows(9), 3, "max"), (rows(9), 4, "max"), (rows(5), 2, "max"),
]  # fmt: skip

# %% tags=["nbval-check-output"]
answers = trace_recompiles(window, calls)
print([call.outcome for call in answers.calls])

# %%
answers

# %% [markdown]
# **Explain.** Counted from 0: call 2 opens the rows. Call 3 gives the default of `size` by hand:
# the same value, so all guards hold. Call 4 has another word. Calls 5 and 6 change `size`: an int,
# but a window, which `unfold` needs as a plain number. So nothing is opened, and a third `size` is
# a third graph. Call 7 fits what call 4 left behind.

# %% [markdown]
# <details><summary>1. A colleague sets <code>dynamic=True</code>, and the first batch of one row
# still compiles. Is that a bug?</summary>
#
# No. 0 and 1 are special: an open size starts at 2.
# </details>
#
# <details><summary>2. The log says <code>tensor 'x' size mismatch at index 0. expected 8, actual
# 3</code>, once, at the end of the first epoch. What do you do?</summary>
#
# `drop_last=True`, or pad the last batch; or mark the size dynamic before the first call. If a
# single compilation per run is no trouble, nothing.
# </details>
#
# <details><summary>3. A model counts its calls in <code>self.calls += 1</code>. Each of the first
# eight steps takes seconds; all later ones are as fast as without compiling. Why?</summary>
#
# The int is guarded by value (torch 2.11 and 2.14), each step makes a graph, and after eight the
# limit is reached: the rest runs as plain Python. Use a buffer, or count outside.
# </details>

# %% [markdown]
# <details><summary>4. You round all lengths up to 64, 128 or 256, with the default
# <code>dynamic=None</code>. How many graphs?</summary>
#
# Two: one for the first bucket, and an open one at the second. You pay for padding and have
# code for any size. Whether one graph for each bucket (`dynamic=False`) is faster, measure.
# </details>

# %% [markdown]
# ## Recap
#
# - A failed guard names the argument: its size, its type, its value, or the mode around the call.
# - A second size is opened (promoted), unless it is 0 or 1: these have graphs of their own.
#   `dynamic=True` opens all sizes at once, `False` none.
# - A number that is only calculated with costs one more compilation. Words, numbers that an
#   operation must know (a loop count, a window, an axis, a probability), and in torch 2.11 and 2.14
#   int attributes cost one per value. A tensor's numbers cost none, what is never read neither.
# - Train and eval, grad modes, dtypes: one graph each.
# - Dynamic shapes: one or two compilations, no padding. Buckets: one compilation each, and padding.
#   Whether their round sizes make up for it, only times on your card can say.
# - After 8 graphs of one function, what is new runs eager. `fail_on_recompile_limit_hit` and
#   `set_stance("fail_on_recompile")` say so.

# %% [markdown]
# ## In practice
#
# - Run the real sequence of calls of your program through `trace_recompiles` once: a whole epoch's
#   shapes, both modes, each kind of request.
# - Warm up with two sizes that are not 0 or 1, and with 1 if it can come, in train and in eval.
# - `TORCH_LOGS="recompiles"` prints each recompile of a running program with its guards.
# - Repair the guard, not the limit: raising `torch._dynamo.config.recompile_limit` only buys more
#   compilations. It is right where you know how many graphs you need, such as ten buckets.
# - torch 2.14 also takes the limit of one function as `torch.compile(fn, recompile_limit=...)`.
# - Move what varies into tensors, and what decides out of the compiled part.

# %% [markdown]
# ## Further reading
#
# - [Dealing with recompilations](https://docs.pytorch.org/docs/stable/compile/programming_model.recompilation.html):
#   torch's own page, with the logs
# - [Dynamic shapes](https://docs.pytorch.org/docs/main/torch.compiler_dynamic_shapes.html):
#   marks, ranges, and how to debug them
# - [set_stance](https://docs.pytorch.org/docs/stable/generated/torch.compiler.set_stance.html):
#   all stances
# - [Compiled optimizers with a scheduler](https://docs.pytorch.org/tutorials/recipes/compiling_optimizer_lr_scheduler.html):
#   the recipe behind the learning rate as a tensor
