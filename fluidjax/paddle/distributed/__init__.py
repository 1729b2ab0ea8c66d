"""Starting the processes of a job."""
