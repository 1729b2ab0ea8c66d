"""Starting the processes of a job on this machine, and watching over them.

=====  =====================================================================
roles  which processes there are, and what each is told by its environment
jobs   starting, watching, ending and starting them again
=====  =====================================================================
"""
