from .datatrove_step import Commands as Commands
from .subcommands import COMMANDS as COMMANDS
from .subcommands import main as main
