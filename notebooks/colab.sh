# Gets the package and the course onto a bare machine, such as Colab's; the second cell of each page runs it there.
set -e
pip install -q "nanoset_ref[lab] @ git+https://github.com/nanoset-ref/nanoset_ref"
git clone -q --depth 1 https://github.com/nanoset-ref/nanoset_ref .clone
ln -s .clone/notebooks/[a-z]* .
