# ruff: noqa: F821 (what the cells above define)

# %% Exercise 1
step = 1 + 100 + (1000 - 100 * 4) // 8


# %% Exercise 2
class SkipOnce(NaiveSkip):
    def __iter__(self):
        skip, self.skip = self.skip, 0
        return islice(self.sampler, skip, None)


# %% Exercise 3
my_batch = [77, 83, 89]


# %% Exercise 4
def counted(loader, state):
    for batch in loader:
        state["consumed"] += len(batch)
        yield batch
