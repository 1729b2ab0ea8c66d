"""Starting and monitoring the processes of a job on this machine.

=====  =====================================================================
roles  which processes there are, and the environment of each
jobs   starting, monitoring, stopping and restarting them
guard  ending what they started when the launcher itself is killed
=====  =====================================================================
"""
