"""`slotkeeper web`: a console in the browser for one stack.

server.py starts it, access.py decides who may use it, reading.py reads the stack for all open pages, frame.py has what
every page has, and the other modules declare the pages. The pages are made with NiceGUI: it brings its own assets, so
that the console needs no build step and no network, its pages are Python, and it pushes changes to the browser.
"""
