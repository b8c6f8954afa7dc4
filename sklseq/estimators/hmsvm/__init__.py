"""``HMSVMTagger`` and what only it uses."""
