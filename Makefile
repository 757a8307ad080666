# make run: set up and open the window.   make test: set up and pass every check.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: run test check-qt

$(VENV)/ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	touch $@

run: $(VENV)/ready check-qt
	$(BIN)/python main.py

# Says what Qt's system libraries lack, with the line that installs it; Qt itself would only abort.
check-qt: $(VENV)/ready
	@$(BIN)/python -m explorer.gui.qt_check

test: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	OMP_NUM_THREADS=1 QT_QPA_PLATFORM=offscreen $(BIN)/python -m pytest -n logical --maxprocesses 4 --dist worksteal
