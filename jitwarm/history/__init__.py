"""Many measurements over many commits: records and asv files in, series and marks out.

Pure data: nothing here imports a plotting library, a compiler or torch.
"""
