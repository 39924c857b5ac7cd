"""What a step of an engine is made of: its buffers and how they are sliced, block tables, chunks of
prefills, and the launches of a layer.
"""
