"""Pages read without a browser, and names that try to be more than text."""

from html.parser import HTMLParser

HOSTILE = ["<script>alert(1)</script>", "' onload='x", "\u202e\ud800</td>&amp;"]
VOID = {"br", "input", "img", "hr", "meta", "link"}
LINKS = {"href", "src", "srcset", "action", "data", "poster", "xlink:href"}


class Page(HTMLParser):
    """Tags that are closed in order, their attributes and links, and the text between them."""

    def __init__(self, page):
        super().__init__()
        self.open, self.tags, self.attributes, self.links, self.text = [], [], [], [], ""
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]
        self.links += [value for name, value in attrs if name in LINKS]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data
