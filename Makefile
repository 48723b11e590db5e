# Each target is one call of helpers/setup.py, which runs on a bare Python; without make, type
# `python3 -m helpers.setup COMMAND`. make itself ends with 2 whenever a command fails; the
# command's own exit code stands in make's message.

PYTHON ?= python3
SETUP = $(PYTHON) -m helpers.setup
OPTIONS = $(if $(TORCH),--torch $(TORCH)) $(if $(WHEELS),--wheels "$(WHEELS)") $(FLAGS)
export LAYERS

.PHONY: help lab test run reset build check execute record wheels install

help:
	@echo 'make lab                     set up and open JupyterLab on lesson 00'
	@echo 'make test                    set up and run all tests; LAYERS="unit papermill": some'
	@echo 'make run                     run every lesson into runs/; LESSON=00 ARGS="-p device cpu"'
	@echo 'make reset LESSON=03         put a lesson back as delivered; yours is kept (or LAB=03)'
	@echo 'make wheels DIR=wheels       download all packages, for a class without network'
	@echo 'make install                 set up only'
	@echo 'make build, check, execute, record   for authors; LESSON=03: one lesson'
	@echo
	@echo 'TORCH=2.7.1 or 2.14.1        use that torch, in an environment of its own'
	@echo 'WHEELS=DIR                   install from that folder, without network'
	@echo 'PYTHON=python3.12            use that Python'
	@echo 'ARGS="..."                   more arguments, for JupyterLab, pytest or the lessons'
	@echo 'FLAGS="..."                  options of the set-up: --here, --without-card, --without-compiler'

lab:
	@$(SETUP) lab $(OPTIONS) -- $(ARGS)

test:
	@$(SETUP) test $(OPTIONS) -- $(ARGS)

run:
	@$(SETUP) run $(OPTIONS) -- $(LESSON) $(ARGS)

reset:
	@$(SETUP) reset $(OPTIONS) -- $(if $(LESSON),LESSON=$(LESSON)) $(if $(LAB),LAB=$(LAB))

build check:
	@$(SETUP) $@ $(OPTIONS) -- $(ARGS)

execute record:
	@$(SETUP) $@ $(OPTIONS) -- $(LESSON) $(ARGS)

wheels:
	@$(SETUP) wheels $(OPTIONS) -- $(if $(DIR),"$(DIR)")

install:
	@$(SETUP) install $(OPTIONS)
