"""May this caller do this action on this index?"""
