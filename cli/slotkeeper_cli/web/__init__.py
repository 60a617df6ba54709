"""`slotkeeper web`: a console in the browser for one stack.

server.py starts it, access.py decides who may use it, shared.py makes each reading once for all open pages, reading.py
has the readings, frame.py what every page has, pages.py the pages, actions.py what their buttons run. A page is HTML of
templates/ and of look/ over the dicts of the commands' answers. NiceGUI serves it, pushes what has changed, and opens
the dialogs; it brings its own assets, so that the console needs no build step and no network.
"""
