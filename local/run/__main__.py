from .main import main

main(prog_name="python -m local.run")
