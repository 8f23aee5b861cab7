"""What each part of the repository costs against a plain implementation of the same, in one process."""
