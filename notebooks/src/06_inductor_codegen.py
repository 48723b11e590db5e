# ---
# title: Read the code that Inductor writes for a GPU
# minutes: 50
# needs: lesson 02
# ---

# %% [markdown]
# # Read the code that Inductor writes for a GPU
#
# {{facts}}
#
# A captured graph is only a list of operations. *Inductor* turns it into programs for the GPU.
# You can read them, even on a machine that has no GPU.

# %% [markdown]
# ## What you'll do
#
# See what becomes of a residual block, read one kernel line by line, change shape, dtype,
# layout and GPU, look at the backward pass, and follow one kernel down to machine code.

# %% [markdown]
# ## What you'll learn
#
# - say which operations become one kernel, which stay library calls, and what fusing saves
# - spot copies between memory layouts, and avoid them
# - read a Triton kernel: its place, masks, loads, stores, cache hints
# - tell persistent, looped and split reductions apart, and say what makes them change
# - say what a backward pass recomputes
# - follow one kernel to PTX, SASS and, on a CPU, to C++

# %% [markdown]
# ## What you'll need
#
# Lesson 02, or to know what a captured graph is. A *kernel* is one program that the GPU runs
# on many numbers at once; starting it is a *launch*. Between two launches, everything that is
# still needed must lie in the GPU's memory.
#
# No GPU is needed: where there is none, the code is generated for an H200, and nothing is
# launched. The text is what that card would get; which of several configurations it would launch,
# only the card can measure.

# %% [markdown]
# ## Setup
#
# Gradients are off until the section on the backward pass.

# %% tags=["parameters"]
device = "auto"

# %%
import re
from collections import Counter

import torch
from torch import nn
from torch.nn import functional as F

from helpers import begin_lesson, generated_code, kernel_view, launch_view

device = begin_lesson("06", device=device)
torch.manual_seed(0)
torch.set_grad_enabled(False)


def randn(*shape):
    return torch.randn(*shape, device=device)


# %% [markdown]
# ## From operations to fused kernels
#
# A block of a residual network: two convolutions, each with its batch norm, and a shortcut
# that adds the input again. One often reads that a compiler makes one kernel of all this.


# %%
class Block(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + x)


# %%
layout = {"memory_format": torch.channels_last}  # explained further down
block = Block().eval().to(device).to(**layout)
images = randn(8, 64, 56, 56).to(**layout)

# %% [markdown]
# **Predict.** Seven operations: convolution, batch norm, relu, convolution, batch norm, add,
# relu. How many launches will be left, and which operations share one?

# %%
code = generated_code(block, images)
view = launch_view(code)
view

# %% tags=["nbval-check-output"]
for one in view.launches:
    print(f"{one.kind}: {one.title}")

# %% [markdown]
# **Inspect.** The arrows are tensors in the GPU's memory. Open the table to see each of them
# with its shape. Then look at the kernels themselves, in the order of their launch:

# %%
code

# %% [markdown]
# **Explain.** Not one kernel, and not seven. A convolution is a *library call*: cuDNN has
# versions that NVIDIA tuned by hand, and Inductor calls them. What comes between is *fused*:
# the second kernel reads the convolution's result and the shortcut once, applies batch norm,
# addition and relu to each number while it is in a register, and writes once.
#
# Names: `arg0_1` and the like are the inputs, `buf0` is memory that Inductor asks for. A box
# that reads `buf1` after one that wrote `buf0` goes on in the same memory.
#
# Two things end a kernel: a library call, and a point where every program would have to wait
# for all others. Within these limits Inductor fuses what works on the same positions.

# %% [markdown]
# ### Bytes that must move
#
# What a kernel reads and writes can be counted from its loads and stores, without a GPU.
#
# **Predict.** Batch norm, addition, relu at the end of the block. In eager mode each is a kernel
# of its own: how many whole tensors do the three read, and how many do they write? How many does
# the fused kernel?

# %%
from helpers import count_bytes, count_bytes_of

steps = [(block.bn2, images), (torch.add, images, images.clone()), (torch.relu, images)]
alone = [kernel for step in steps for kernel in count_bytes(*step).kernels]
fused = [count_bytes_of(code).kernels[-1]]

# %% tags=["nbval-check-output"]
for name, kernels in (("each alone", alone), ("fused", fused)):
    read = sum(one.read for one in kernels) / images.nbytes
    written = sum(one.written for one in kernels) / images.nbytes
    print(f"{name}: {read:.1f} tensors read, {written:.1f} written")

# %% [markdown]
# **Explain.** Seven tensors against three. What lies between the steps never gets to memory. The
# parameters of batch norm are too small to show. These are counts, no times: where memory is
# what a GPU waits for, they decide; lesson 07 goes from bytes to time.

# %% [markdown]
# ### Layouts, and the copies between them
#
# In memory a tensor is one long row of numbers. *Contiguous* means: one channel after the
# other, each a whole image. *Channels-last* means: one pixel after the other, each with all
# its channels. Shape and values are the same. cuDNN prefers channels-last.
#
# **Predict.** Now block and images are contiguous, as they are by default. What will be added
# to the four launches?

# %%
plain_block = Block().eval().to(device)
plain_images = randn(8, 64, 56, 56)
plain = launch_view(generated_code(plain_block, plain_images))
plain

# %% tags=["nbval-check-output"]
print("channels-last:", [one.kind for one in view.launches])
print("contiguous:   ", [one.kind for one in plain.launches])
print("images:", plain.launches[0].reads[0].layout)
print("the convolution gets:", {one.layout for one in plain.launches[2].reads})
print("the result:", plain.launches[-1].writes[0].layout)

# %% [markdown]
# **Explain.** Three copies: the images and both weights are turned into channels-last before
# the convolutions, at every call. In the code, a copy is a kernel with one load, one store and
# no arithmetic between, at different places: it reads `x2 + 3136*y3`, say, and writes
# `y0 + 64*x2`. The way back costs no launch: the last kernel writes in the layout that you
# expect. Inductor decides by rules of thumb whether converting pays.
#
# `.to(memory_format=torch.channels_last)` on model and images, once, takes the copies away.

# %% [markdown]
# ## Read one kernel line by line
#
# *SwiGLU* is a step in most language models. Here each column has a factor too.


# %%
def swiglu(gate, up, scale):
    return F.silu(gate) * up * scale


gate, up, scale = randn(1000, 37), randn(1000, 37), randn(37)

# %% [markdown]
# **Predict.** Before you see the kernel: how many loads, how many stores? Which of the three
# tensors is read again and again? The GPU works in blocks of, say, 512 numbers, and there are
# 37,000: what must happen in the last block?

# %%
[kernel] = generated_code(swiglu, gate, up, scale).kernels
kernel_view(kernel)

# %% [markdown]
# **Inspect.** Read it in five steps, by the words on the right.
#
# 1. *place*: thousands of copies of this program run at once, and `tl.program_id` tells each
#    which one it is. From that follows its block of positions.
# 2. *mask*: which of them exist. In the last block some do not.
# 3. *load*: whole blocks come from memory into registers. `x0` is the remainder by 37, so the
#    37 scales are read by every row: hence `evict_last`, "let this leave the cache last".
# 4. *calculate*: only registers, no memory. `silu` is gone as a name; it is arithmetic now.
# 5. *store*: one, at the end.

# %% tags=["nbval-check-output"]
body = kernel.body
print("loads:", body.count("tl.load("), " stores:", body.count("tl.store("))
print("mask compares with the size:", "xindex < xnumel" in body)
print("kept in the cache:", re.findall(r"tl.load\((\w+).*evict_last", body))

# %% [markdown]
# The *grid*, the number of programs, is the number of positions divided by the block, rounded
# up. Triton tries the candidates on the card and keeps the fastest:

# %%
for config in kernel.configs:
    size = int(re.search(r"XBLOCK\W+(\d+)", config)[1])
    print(f"{config}: {-(-gate.numel() // size)} programs")

# %% [markdown]
# **Predict.** With 1024 rows of 1024 instead, what becomes of the mask?

# %%
square = [randn(1024, 1024), randn(1024, 1024), randn(1024)]
[even] = generated_code(swiglu, *square).kernels

# %% tags=["nbval-check-output"]
print("mask compares with the size:", "xindex < xnumel" in even.body)
print([line.strip() for line in even.body.splitlines() if "xnumel =" in line])

# %% [markdown]
# **Explain.** A fixed size is written into the kernel as a number. 1,048,576 is a multiple of
# every block that will be tried, so nothing can stick out, and the comparison is left out. 64,000
# is not, and keeps it. In some kernels, as in the next one, it stays although it is always true.

# %% [markdown]
# ## Reductions: what changes with shape, dtype and GPU
#
# A sum over a row is a *reduction*: many numbers become one. The programs of a GPU cannot
# cheaply wait for each other, so the shape decides how it is done.


# %%
def rms_norm(x, weight):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * weight


def total(x):
    return x.square().sum()


# %% [markdown]
# **Predict.** Rows of 1024, rows of 4096, and one row of four million. How many kernels does
# each need? In which does a program hold its whole row, in which is there a loop?

# %%
x, long_x, huge = randn(512, 1024), randn(512, 4096), randn(1 << 22)
short = generated_code(rms_norm, x, randn(1024))
long = generated_code(rms_norm, long_x, randn(4096))
split = generated_code(total, huge)

# %% tags=["nbval-check-output"]
for name, found in (("1024", short), ("4096", long), ("4 million", split)):
    loops = ["loop" if "for " in one.body else "no loop" for one in found.kernels]
    print(f"{name:>9}:", [one.kind for one in found.kernels], loops)

# %%
kernel_view(short.kernels[0])

# %%
kernel_view(long.kernels[0])

# %% [markdown]
# **Explain.** (`[:, None]` puts `x` down and `r` across: a block is now a table of numbers.)
#
# - *Persistent*: the whole row lies in registers. It is loaded once, summed, scaled, stored.
# - *Looped*: above about 1024 Inductor writes a loop, by a rule of thumb. A first loop sums, a
#   second loads the row again to scale it. The hints fit: the first asks to keep the row in the
#   cache (`evict_last`), the second lets it go (`evict_first`). How often the loops go round is
#   the configuration's business: `R0_BLOCK=2048` takes a row of 4096 in two rounds.
# - *Split*: with one row there would be one program, and the rest of the GPU idle. So the row is
#   cut, a first kernel sums each piece, a second sums the sums. You know a split by its two
#   reductions, with a small tensor between them:

# %%
launch_view(split)

# %% [markdown]
# ### Another dtype
#
# **Predict.** The same rows in `bfloat16`. Which lines will differ?

# %%
from helpers import difference_view

half = generated_code(rms_norm, x.bfloat16(), randn(1024).bfloat16())
difference_view(short, half)

# %% tags=["nbval-check-output"]
for name, found in (("float32", short), ("bfloat16", half)):
    [one] = found.kernels
    widened = re.search(r"tl\.load\(.*\.to\(tl\.float32\)", one.body)
    print(name, one.kind, "loads made float32:", widened is not None)

# %% [markdown]
# **Explain.** Only half the bytes are moved, but what is computed is computed in float32: each
# load is widened. The store looks the same; it rounds because its address is one of bfloat16
# numbers (`*bf16`, in the header). `.to(tl.float32)` on what is float32 already changes nothing:
# it marks a place where eager would have rounded. Eager rounds after every operation, so the
# compiled result is not bit for bit equal to eager's.

# %% [markdown]
# ### Another GPU
#
# A T4 has 40 multiprocessors, an H200 has 132. The next code is generated for both, whatever
# this machine has.
#
# **Predict.** Will `rms_norm` differ? Will `total`?

# %%
cards = ("h200", "t4")
norm_on = [generated_code(rms_norm, x, randn(1024), target=card) for card in cards]
total_on = [generated_code(total, huge, target=card) for card in cards]
difference_view(*norm_on)

# %%
difference_view(*total_on)

# %% tags=["nbval-check-output"]
pieces = []
for found in total_on:
    first = found.kernels[0].body
    pieces.append(int(re.search(r"xnumel = (\d+)", first)[1]))
print("same text for rms_norm:", difference_view(*norm_on).same)
print("pieces on the H200:", pieces[0], " more than on the T4:", pieces[0] > pieces[1])

# %% [markdown]
# **Explain.** A kernel's text seldom depends on the card. Here the split does: more
# multiprocessors, more pieces. What always differs is below the text: the configurations that
# are tried, and the machine code. So what you read here for an H200 is nearly always the text that
# your card gets, and tells nothing about its speed. An exception: a T4 has no bfloat16
# arithmetic, and Inductor writes no code for it there.

# %% [markdown]
# ## The backward pass
#
# Training needs gradients. Inductor gets a second graph for them, and writes kernels for it
# by the same rules.


# %%
class NormedGelu(nn.Module):
    def __init__(self, width=1024):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        return F.gelu(self.norm(x)) + x


# %% [markdown]
# **Predict.** The forward pass is one kernel. The backward pass needs the gradient of `x`, a
# row at a time, and those of the norm's weight and bias, which sum over all rows. How many
# kernels? Will `gelu` be computed again, or its result be kept?

# %%
model, data = NormedGelu().to(device), randn(512, 1024).requires_grad_()
with torch.enable_grad():
    trained = generated_code(model, data)
launch_view(trained)

# %% tags=["nbval-check-output"]
print(dict(Counter(one.phase for one in trained.kernels)))
[forward, *backward] = trained.kernels
print("forward:", forward.kind)
for one in backward:
    again = "erf" in one.body
    print(f"backward: {one.kind:20} gelu's erf computed again: {again}")

# %%
kernel_view(backward[0])

# %% [markdown]
# **Inspect.** *Primals* are inputs of the forward pass, *tangents* the gradient that comes in.
# This kernel loads `x`, that gradient, weight and bias, and two small tensors: of each row the
# mean and 1 / standard deviation. The normalised value and `gelu`'s derivative are calculated
# again. The last kernel only sums; a name tells where a kernel comes from, not what is in it.
#
# **Explain.** Three kernels. The first makes the gradient of `x`: persistent, a row per program.
# The gradients of weight and bias sum over 512 rows, so they are a split reduction: pieces, then
# the sum of the pieces, in a kernel that is launched twice, for the weight and for the bias.
#
# Between the passes nothing as big as `x` is kept: to *recompute* it takes a few operations in
# registers. Within the backward pass it is different: the first kernel also stores a whole
# tensor for the second, which sums along the other axis and so cannot be fused with it. Lesson 05
# tells who decides what is kept.

# %% [markdown]
# ## Down to PTX and SASS
#
# Triton's text is not what runs. It is translated in steps: blocks become threads, and threads
# become instructions. *PTX* is NVIDIA's portable assembly; *SASS* is the machine code of one kind
# of card.
#
# A program runs on several *warps* of 32 threads, its *lanes*. Lanes of one warp can hand each
# other numbers; warps meet in the multiprocessor's *shared memory*, and a *barrier* makes them
# wait for each other. *Tensor cores* multiply small matrices.
#
# **Predict.** In `swiglu` each thread works alone. In `rms_norm` all threads need one sum: how do
# they get it? Does either kernel use tensor cores?

# %%
from helpers import stage_view

deep = ("triton", "ptx", "sass")
[gated] = generated_code(swiglu, *square, stages=deep).kernels
[normed] = generated_code(rms_norm, x, randn(1024), stages=deep).kernels
stage_view(gated, "ptx")

# %%
stage_view(gated, "sass")

# %%
stage_view(normed, "ptx")

# %% tags=["nbval-check-output"]
for name, one in (("swiglu", gated), ("rms_norm", normed)):
    ptx = one.stages["ptx"]
    words = {"shuffle": "shfl.sync", "barrier": "bar.sync", "tensor core": "mma"}
    print(name, {word: instruction in ptx for word, instruction in words.items()})

# %% [markdown]
# **Inspect.** Open the PTX of `swiglu` and search for `ld.global`. The ending says how much one
# thread takes at once: `v4.b32` is four numbers of 32 bits, 128 bits in one instruction, the
# most that these cards load at once before Blackwell. In the SASS it is `LDG.E.128`.
#
# **Explain.** Lanes of a warp hand each other their partial sums (`shfl.sync`), then the warps
# meet in shared memory, behind a barrier (`bar.sync`). None of this is in the Triton text:
# `tl.sum` became all of it. Tensor cores multiply matrices; here they are inside the library
# calls.

# %% [markdown]
# ## For contrast: C++ on a CPU
#
# For a CPU the same Inductor writes C++. The fusion is the same, and the shape of the code is
# not.
#
# **Predict.** There is no program id on a CPU. What will take its place? What takes the place
# of the mask?

# %%
on_cpu = generated_code(swiglu, gate, up, scale, target="cpu")
kernel_view(on_cpu.kernels[0])

# %% tags=["nbval-check-output"]
[cpp] = on_cpu.kernels
print("kernels:", len(on_cpu.kernels), " library calls:", len(on_cpu.library_calls))
print("has a loop:", "for(" in cpp.source, " Triton:", "tl.load" in cpp.source)

# %% [markdown]
# **Explain.** Loops. A GPU starts a program per block, a CPU goes through the blocks in a few
# threads (`#pragma omp`, if this machine has several). Within a block it takes 8 or 16 numbers
# at once, in vector registers; what is left over at the end of a row is done apart, where the
# GPU has its mask. One fused loop, no tensor in between: that gain is the same.

# %% [markdown]
# ## Explore it
#
# A function with a flag, and a row that is reduced. First the view as it starts, without
# controls.


# %%
def scaled(x, r, norm=True):
    if norm:
        x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
    return F.silu(x) + r


# %%
from helpers import codegen_view

codegen_view(scaled, shape=(512, 1024), device=device)

# %% [markdown]
# Now with controls. Edit the text, then press **Tab** (or *Generate*). Say first what you
# expect:
#
# - untick `norm`, and tick it again
# - set *width* to 1025, then to 100, then back to 1024
# - choose `bfloat16`, and look at the column *must move*; then `int64`; then `float32`
# - tick *backward too*, and untick it
# - *stage of the first kernel*: `ptx`
# - *compare with* a T4; then untick `norm`, write `return (x * r).sum()` as the last line, and set
#   *rows* to 4096
# - write `return torch.relu(x @ r.T)` as the last line

# %% [markdown]
# <details><summary>What you should have seen</summary>
#
# - without `norm`: one pointwise kernel, no reduction
# - 1025: a looped reduction, for the row is longer than Inductor's limit; 100: persistent again
# - `bfloat16`: loads widened to float32, and half the bytes. `int64`: an error at line 3, since
#   `mean` needs floating point
# - *backward too*: a second graph, with a kernel of its own
# - `ptx`: counts of its instructions, and the text
# - T4: the text is the same, only the header differs. The sum is split in two kernels, on a T4
#   into fewer pieces. (With `bfloat16` there is nothing to compare: a T4 has no such arithmetic,
#   and Inductor writes no code for it.)
# - `x @ r.T`: a library call, and a kernel for `relu` alone
# </details>

# %% tags=["widget"]
from helpers import codegen_panel

codegen_panel(scaled, shape=(512, 1024), device=device)

# %% [markdown]
# ## Check yourself
#
# **Predict.** The heart of attention, without the values. Before you run the cells:
#
# 1. How many launches, and of what kind?
# 2. Which operations share the kernel?
# 3. With 4096 keys instead of 512, what changes?


# %%
def weights(q, k):
    return torch.softmax(q @ k.T / 8, -1)


# %%
tried = {}
for keys in (512, 4096):
    tried[keys] = generated_code(weights, randn(64, 64), randn(keys, 64))

# %% tags=["nbval-check-output"]
for keys, found in tried.items():
    kinds = [one.kind for one in launch_view(found).launches]
    print(f"{keys} keys:", kinds, [one.kind for one in found.kernels])

# %% [markdown]
# <details><summary>Answers</summary>
#
# 1. Two: a library call for the product, and one kernel.
# 2. The division and everything in `softmax`: largest number, difference, exponential, sum,
#    division.
# 3. A row of 512 fits one program, a row of 4096 does not: the kernel becomes a looped
#    reduction. The number of launches stays.
# </details>

# %% [markdown]
# Three more, without code:
#
# <details><summary>4. A kernel has <code>evict_first</code> at a load. What does Inductor expect
# of that tensor?</summary>
#
# That nobody reads these numbers again soon: they may leave the cache first, so that others
# can stay. It is a hint, and changes no result.
# </details>
#
# <details><summary>5. You find a kernel with one load, one store and no arithmetic in front of
# each convolution. What do you do?</summary>
#
# It copies from one layout to another. Bring model and input into channels-last once, before
# the first call.
# </details>
#
# <details><summary>6. Nothing in the kernel of an addition waits for the kernel that made its
# input. Why is the input ready all the same? And why does a sum over everything take two
# kernels?</summary>
#
# The launches are in one queue, and the GPU runs a queue in order. Within one kernel there is
# no such order between programs: so the second step of the sum has to be a second kernel.
# </details>

# %% [markdown]
# ## Recap
#
# - What works on the same positions is fused into one kernel; convolutions and matrix products
#   stay library calls.
# - A kernel that only copies changes a layout: channels-last on model and input avoids it.
# - A Triton kernel finds its place by its program id, masks what lies past the end, loads,
#   calculates in registers, stores; eviction hints say what the cache should keep.
# - A short row is reduced by one program, a long one in a loop, a single huge one in two kernels.
#   Shape decides most, dtype widens loads, the card seldom changes the text.
# - A backward pass recomputes what is cheap, and sums over rows for the weights.
# - PTX and SASS show what became of `tl.load` and `tl.sum`; on a CPU the same fusion is a loop
#   in C++.

# %% [markdown]
# ## In practice
#
# - Look for library calls first: between them lies what fusion can gain.
# - Too many small kernels? Look for what keeps them apart: a graph break (lesson 03), a library
#   call, a reduction over everything, or a changed layout.
# - With `TORCH_LOGS="output_code"` in the environment, torch prints wrapper and kernels of a
#   program of your own; `TORCH_COMPILE_DEBUG=1` writes them to files.
# - Read code of the same torch version that you run: texts change between versions. What is
#   checked in this lesson holds on 2.7, 2.11 and 2.14.
# - The text says what is moved (`count_bytes`), not how fast: lesson 07 goes on from there.

# %% [markdown]
# ## Further reading
#
# - [torch.compiler, GPU profiling](https://docs.pytorch.org/docs/stable/torch.compiler_inductor_profiling.html):
#   names of Inductor's kernels, and how to run one alone
# - [Triton, vector addition](https://triton-lang.org/main/getting-started/tutorials/01-vector-add.html):
#   program ids, offsets and masks, from the start
# - [Channels-last in PyTorch](https://docs.pytorch.org/tutorials/intermediate/memory_format_tutorial.html):
#   what the layout is, and how to keep it
# - [PTX ISA](https://docs.nvidia.com/cuda/parallel-thread-execution/): every instruction
