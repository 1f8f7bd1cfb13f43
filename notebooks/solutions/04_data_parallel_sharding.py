# %% Exercise 1
answer = 16 % 5, -16 % 5


# %% Exercise 2
def who(position):
    batch, place = divmod(position, 96 * 4)
    step, micro_batch = divmod(batch, 2)
    row, rank = divmod(place, 96)
    return 1 + step, micro_batch, rank, row


# %% Exercise 3
def job(gpu):
    pp_rank, dp_rank = gpu // 256, gpu // 4 % 64
    return [dp_rank, dp_rank + 64], {0: "input_ids", 3: "label_ids"}.get(pp_rank)
