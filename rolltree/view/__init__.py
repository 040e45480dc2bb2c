"""The browser: runs, trees and tokens on local web pages. Start it with `rolltree view RUN`.

Modules here turn saved forests into plain dataclasses and know nothing of pages; `rolltree.view.pages` draws them with
NiceGUI, which `pip install 'rolltree[view]'` brings. Nothing here imports torch unless a model's tokenizer needs it.
"""
