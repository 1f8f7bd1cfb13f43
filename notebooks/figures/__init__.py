"""The pictures of the notebooks: a module per notebook or two, a function per picture, from plain data to a `Figure`.

They build `Figure` objects themselves, not through pyplot: nothing stays open, no backend is chosen for the caller.
"""

import contextlib

from matplotlib import font_manager, rcParams

with contextlib.suppress(ImportError):  # matplotlib's own typeface serves as well
    from font_source_sans_pro import font_files_ttf

    for face in ("SourceSansPro", "SourceSansProIt", "SourceSansProBold"):
        font_manager.fontManager.addfont(font_files_ttf[face])

rcParams["font.family"] = ["Source Sans Pro", "DejaVu Sans"]
rcParams["font.size"] = 10.5
rcParams["axes.titlesize"] = 12
rcParams["axes.titleweight"] = "bold"
rcParams["axes.titlelocation"] = "left"
rcParams["axes.labelsize"] = rcParams["xtick.labelsize"] = rcParams["ytick.labelsize"] = 10
rcParams["axes.spines.top"] = rcParams["axes.spines.right"] = False
