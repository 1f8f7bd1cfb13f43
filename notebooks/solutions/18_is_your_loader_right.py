# ruff: noqa: F821 (what the cells above define)

# %% Exercise 1
kind = "doubled"


# %% Exercise 2
def hangs(rows, ranks, batch_size):
    return 0 < rows % (ranks * batch_size) < ranks


# %% Exercise 3
class Resumable(Buffered):
    def state_dict(self):
        return self.source, list(self.buffer), self.random.bit_generator.state

    def load_state_dict(self, state):
        self.source, self.buffer, self.random.bit_generator.state = state
